package postoffice_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/postoffice"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/memvan"
)

// A scheduler, a worker and a server in one process: they find each other, meet in a barrier, and leave.
func Example() {
	ctx := context.Background()
	network := memvan.NewNetwork()
	memory, err := tensor.NewAllocator(tensor.Options{})
	check(err)

	root := newNode(network, memory, nil)
	defer root.Close()
	scheduler, err := postoffice.NewScheduler(root, postoffice.SchedulerOptions{Workers: 1, Servers: 1})
	check(err)
	rendezvous, err := root.Listen("mem://scheduler")
	check(err)

	var all sync.WaitGroup
	for _, role := range []stepvan.Role{stepvan.RoleWorker, stepvan.RoleServer} {
		all.Go(func() {
			var office *postoffice.Office
			node := newNode(network, memory, func(peer link.Identity) error { return office.Admit(peer) })
			defer node.Close()
			office, err := postoffice.NewOffice(node, postoffice.OfficeOptions{Role: role, Rank: postoffice.AnyRank, Instance: postoffice.AnyLocalRank})
			check(err)
			own, err := node.Listen("mem://" + string(role))
			check(err)
			check(office.Join(ctx, rendezvous, own))
			check(office.Barrier(ctx, postoffice.GroupServers|postoffice.GroupWorkers, true))
			if role == stepvan.RoleWorker {
				fmt.Println(office.Self().Name(), "talks to", office.Peers()[0].Name(), "at", office.Peers()[0].Addresses[0])
			}
			check(office.Stop(ctx))
		})
	}
	check(scheduler.Start(ctx))
	check(scheduler.Stop(ctx))
	all.Wait()
	// Output: worker 0 talks to server 0 at mem://server
}

func newNode(network *memvan.Network, memory *tensor.Allocator, admit func(link.Identity) error) *link.Transport {
	n, err := link.NewTransport(link.Options{
		Memory: memory, Admit: admit,
		Vans: []link.VanMaker{func(p van.Placer, wake func()) (van.Van, error) {
			return memvan.New(network, memvan.Options{Placer: p, Wake: wake})
		}},
	})
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
