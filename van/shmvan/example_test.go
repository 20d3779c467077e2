package shmvan_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stepvan/stepvan/internal/wire"
	"github.com/stepvan/stepvan/tensor"
	"github.com/stepvan/stepvan/van"
	"github.com/stepvan/stepvan/van/shmvan"
)

// noPayload is a Placer for messages without payload.
type noPayload struct{}

func (noPayload) Place(van.Endpoint, *wire.Header, []byte, [][]byte) ([][]byte, error) {
	return nil, fmt.Errorf("no payload is expected")
}

// A process lets another one work in its memory. Both are in this process here.
func Example() {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("stepvan-example-%d", os.Getpid()))
	defer func() { _ = os.RemoveAll(dir) }()
	memory, err := tensor.NewAllocator(tensor.Options{Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = memory.Close() }()
	options := shmvan.Options{Placer: noPayload{}, Files: memory, Dir: dir}
	a, _ := shmvan.New(options)
	b, _ := shmvan.New(options)
	defer func() { _, _ = a.Close(), b.Close() }()

	addr, err := b.Listen("")
	if err != nil {
		fmt.Println(err)
		return
	}
	here, err := a.Dial(context.Background(), addr)
	if err != nil {
		fmt.Println(err)
		return
	}
	region, _ := memory.AllocZeroed(64)
	defer func() { _ = region.Close() }()
	grant, err := here.(van.Granter).Grant(region.Bytes(), 1, van.RightWrite)
	if err != nil {
		fmt.Println(err)
		return
	}

	events := make([]van.Event, 1)
	for b.Poll(events, true) == 0 { // a driver sleeps on FD when Arm says so
		continue
	}
	there := events[0].Endpoint.(van.Viewer)
	view, err := there.Map(van.Target{Grant: grant.ID, Generation: grant.Generation}, grant.Length, van.RightWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(view.Bytes, "hello")
	view.Release()
	fmt.Println(string(region.Bytes()[:5]))
	// Output: hello
}
