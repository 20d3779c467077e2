package mutant

import (
	"slices"

	"github.com/stepvan/stepvan/internal/vantest"
	"github.com/stepvan/stepvan/van"
)

// Mutation is one way to break the contract.
type Mutation struct {
	Name string
	// Clauses of which at least one must be found violated, by the cases of these clauses.
	Clauses []int
	mutate  func(*mutantVan)
}

// Mutations returns all of them.
func Mutations() []Mutation {
	var list []Mutation
	list = append(list, completionMutations...)
	list = append(list, messageMutations...)
	list = append(list, placementMutations...)
	list = append(list, viewMutations...)
	list = append(list, GrantMutations()...)
	list = append(list, lifeMutations...)
	return list
}

// GrantMutations returns those that bite one-sided vans without views, too.
func GrantMutations() []Mutation { return slices.Clone(grantMutations) }

// OffloadMutations returns those that bite vans with a device alone.
func OffloadMutations() []Mutation { return slices.Clone(offloadMutations) }

// RegisteredMutations returns those that bite vans with a device that reaches registered memory alone.
func RegisteredMutations() []Mutation { return slices.Clone(registeredMutations) }

// None changes nothing: a van that passes must pass with it too.
var None = Mutation{Name: "none", mutate: func(*mutantVan) {}}

// Wrap returns a factory whose vans have the mutation.
func Wrap(f vantest.Factory, m Mutation) vantest.Factory {
	w := f
	w.Name = f.Name + " with " + m.Name
	grants := &granted{mem: map[van.GrantID][]byte{}}
	w.New = func(placer van.Placer, wake func()) (van.Van, error) {
		v := &mutantVan{
			placer: placer, wake: wake, known: map[van.Endpoint]*endpoint{}, reopened: make(chan struct{}), granted: grants,
		}
		m.mutate(v)
		inner, err := f.New(v, v.ring)
		if err != nil {
			return nil, err
		}
		v.inner = inner
		return v, nil
	}
	return w
}
