package ps

import (
	"context"
	"errors"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/internal/storages"
	"github.com/stepvan/stepvan/tensor"
)

// Storages has the memory of the program that the node registers by itself. It is nil where no device needs that, and
// with STEPVAN_REGISTER=explicit. It is for the interfaces of other languages: a program in Go registers what it uses
// again and again.
func (n *Node) Storages() *storages.Table { return n.storages }

// makeStorages makes the table of storages, where a device of a member reaches only registered memory.
func (n *Node) makeStorages() {
	needed := false
	for _, m := range n.members {
		needed = needed || m.registers() && m.link.Registry.Needed()
	}
	if !needed || n.settings.Register != config.RegisterAuto {
		return
	}
	n.storages = storages.New(storages.Options{
		Register: n.registerStorage, Limit: int64(n.settings.RegisterBytes), Log: n.members[0].log,
		Contain: func(work func()) {
			_ = n.contained(func(context.Context) error { work(); return nil })(context.Background()) // the node has the error
		},
	})
}

// registerStorage registers t with all members.
func (n *Node) registerStorage(t tensor.Tensor) (storages.Registration, error) {
	var all memberRegistrations
	for _, m := range n.members {
		r, err := m.registerStorage(t)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, r)
	}
	return all, nil
}

// registers reports whether the member can register memory.
func (m *member) registers() bool { return m.worker != nil || m.server != nil }

func (m *member) registerStorage(t tensor.Tensor) (storages.Registration, error) {
	if m.worker == nil {
		return m.server.Register(t)
	}
	return m.worker.Register(t)
}

// memberRegistrations are the registrations of the same memory with each member.
type memberRegistrations []storages.Registration

func (all memberRegistrations) Registered() bool {
	for _, r := range all {
		if r.Registered() {
			return true
		}
	}
	return false
}

func (all memberRegistrations) Close() (err error) {
	for _, r := range all {
		err = errors.Join(err, r.Close())
	}
	return err
}
