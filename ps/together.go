package ps

import (
	"context"
	"sync"
)

// together runs tasks at once and waits for all. The first error ends the context of
// the others and is the one returned.
func together(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	var once sync.Once
	var all sync.WaitGroup
	for _, task := range tasks {
		all.Go(func() {
			if err := task(ctx); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	all.Wait()
	return first
}
