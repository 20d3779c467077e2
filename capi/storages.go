package main

// #include "boundary.h"
import "C"

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stepvan/stepvan/internal/storages"
)

// Memory of stepvan_wrap is a storage: its number names no other memory, and the program ends the number before it
// gives the memory back. A node that registers memory by itself counts the operations that name it.

// registering has the tables of the nodes that register memory by themselves.
var registering tables

// tables are replaced as a whole, so the end of a memory needs no lock.
type tables struct {
	list atomic.Pointer[[]*storages.Table]
	mu   sync.Mutex // of those that replace the list
}

func (x *tables) all() []*storages.Table {
	if list := x.list.Load(); list != nil {
		return *list
	}
	return nil
}

// add adds the table of a node, if it has one.
func (x *tables) add(t *storages.Table) {
	if t == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	list := append(slices.Clone(x.all()), t)
	x.list.Store(&list)
}

func (x *tables) remove(t *storages.Table) {
	if t == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(x.all()), func(other *storages.Table) bool { return other == t })
	x.list.Store(&list)
}

// end has the devices give up memory of stepvan_wrap. It blocks.
func (x *tables) end(number cUint64) {
	for _, t := range x.all() {
		t.End(storages.ID(number))
	}
}

// goRegisters implements
//
//	int32_t stepvan_registers(uint64_t node, int32_t *registers, stepvan_error *error);
//
//export goRegisters
func goRegisters(id cUint64, registers *cInt32, e *cError) cCode {
	return onNode(id, e, func(n *node) error {
		if registers == nil {
			return isNull("registers")
		}
		*registers = truth(n.live.Load().Storages() != nil)
		return nil
	})
}
