package pairtest

import (
	"os"

	"github.com/stepvan/stepvan/internal/link"
	"github.com/stepvan/stepvan/rdma"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
)

// requireRDMA is set in a machine with software RDMA (scripts/test-rdma.sh), which also says where its devices are.
const requireRDMA, firstAddress = "STEPVAN_TEST_REQUIRE_RDMA", "RDMAVM_IP0"

// RDMA is package rdma between the two devices of a machine of scripts/rdma-vm.
func RDMA() Van {
	return Van{
		Name: "rdma",
		Maker: func(string, *tensor.Allocator) link.VanMaker {
			return func(p van.Placer, _ func()) (van.Van, error) { return rdma.New(rdma.Options{Placer: p}) }
		},
		Addr: func(string) string { return "rdma://" + os.Getenv(firstAddress) + ":0" },
	}
}
