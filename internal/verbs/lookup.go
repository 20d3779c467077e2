package verbs

import "sync"

// lookup finds the Go side of an object of C by its address.
type lookup struct {
	mu      sync.Mutex
	objects map[uintptr]any
}

func (l *lookup) add(address uintptr, object any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects = map[uintptr]any{}
	}
	l.objects[address] = object
}

func (l *lookup) remove(address uintptr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, address)
}

// find returns nil for an address that is not there.
func (l *lookup) find(address uintptr) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.objects[address]
}
