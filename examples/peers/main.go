package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/stepvan/stepvan/peer"
	"github.com/stepvan/stepvan/ps"
	"github.com/stepvan/stepvan/tensor"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: peers train|serve PORT")
	}
	ctx, trains := context.Background(), os.Args[1] == "train"
	s := ps.DefaultSettings()
	s.Role, s.NumPeer, s.RootURI = ps.RolePeer, 2, "127.0.0.1"
	s.RootPort, _ = strconv.Atoi(os.Args[2])
	settings := []ps.Settings{s}
	if trains { // this job hosts the scheduler
		s.Role = ps.RoleScheduler
		settings = append(settings, s)
	}
	nodes, err := ps.StartAll(ctx, settings)
	check(err)
	p := nodes[0].Peer()

	weights, err := nodes[0].Memory().Zeros(tensor.Float32, 256, 1024)
	check(err)
	numbers, err := tensor.As[float32](weights)
	check(err)
	sends := []peer.Move{{ID: 1, Peer: 1 - p.Rank(), View: weights.Strided(), Label: "weights"}}
	var recvs []peer.Move
	if !trains {
		sends, recvs = nil, sends
	}
	plan, err := p.Plan(ctx, "weights", sends, recvs)
	check(err)
	for step := range 3 {
		if trains {
			for i := range numbers {
				numbers[i] += 0.5 // in place of a step of training
			}
		}
		run, err := plan.Begin(uint64(step + 1))
		check(err)
		check(run.Wait(ctx))
		fmt.Println(plan.Version(), numbers[0], numbers[len(numbers)-1])
	}
	check(plan.Close(ctx))
	for _, n := range nodes {
		check(n.Stop(ctx))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
