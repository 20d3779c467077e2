package vantest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepvan/stepvan/van"
)

// Clause is one clause of the contract and the cases that prove it.
type Clause struct {
	Number int    // as in package van; 0 for what the methods of Van promise besides
	Name   string // a few words
	cases  []testCase
}

type testCase struct {
	name string
	run  func(*trial)
	need need
}

// need says which vans a case is for.
type need uint8

const (
	needOneSided   need = 1 << iota // grants
	needViews                       // grants that can be seen
	needBlind                       // grants that cannot be seen
	needOffload                     // a device that moves payload
	needRegistered                  // a device that reaches registered memory alone
	needLossy                       // loses connections by itself
	needProcess                     // crosses processes
	needGreeting                    // has a greeting of its own
)

// lossyClause has the cases for vans that lose connections by themselves.
const lossyClause = 11

// Failure is a violated clause.
type Failure struct {
	Clause int    // the clause that was violated
	Case   string // the case that noticed
	Text   string
}

// Error reads "clause 4: ... (in case ...)".
func (f Failure) Error() string {
	return fmt.Sprintf("clause %d: %s (in case %q)", f.Clause, f.Text, f.Case)
}

// Clauses returns all clauses, in order.
func Clauses() []Clause {
	return []Clause{
		dialing, arming,
		clause01, clause02, clause03, clause04, clause05, clause06,
		clause07, clause08, clause09, clause10, clause11, clause12,
	}
}

// title is the name of the clause's sub-test.
func (c Clause) title() string { return fmt.Sprintf("clause%02d_%s", c.Number, c.Name) }

// Check runs the cases of the clause that suit the van and returns what they found. Unlike Run it needs no *testing.T,
// and leaves out the cases with other processes. It works inside testing/synctest when the van does.
func (c Clause) Check(f Factory) []Failure {
	caps, err := capsOf(&f)
	if err != nil {
		return []Failure{{c.Number, "factory", err.Error()}}
	}
	var found []Failure
	for _, tc := range c.cases {
		if tc.need&needProcess == 0 && tc.unfit(&f, caps) == "" {
			if v := runCase(f, c, tc); v != nil {
				found = append(found, *v)
			}
		}
	}
	return found
}

// unfit says why a case is not for the vans of f, "" when it is.
func (tc testCase) unfit(f *Factory, caps van.Caps) string {
	switch {
	case tc.need&(needOneSided|needBlind) != 0 && !caps.OneSided:
		return "Caps.OneSided is false"
	case tc.need&needViews != 0 && !caps.Views:
		return "Caps.Views is false"
	case tc.need&needOffload != 0 && !caps.Offload:
		return "Caps.Offload is false"
	case tc.need&needRegistered != 0 && !caps.Registered:
		return "Caps.Registered is false"
	case tc.need&needBlind != 0 && caps.Views:
		return "Caps.Views is true"
	case tc.need&needProcess != 0 && f.NoProcesses:
		return "there is no process to cross to"
	case tc.need&needGreeting != 0 && f.NoGreeting:
		return "there is no greeting to spoil"
	case tc.need&needLossy != 0 && !caps.Lossy:
		return "connections are not lost at random"
	case tc.need&needLossy == 0 && caps.Lossy:
		return "Caps.Lossy is true"
	}
	return ""
}

// capsOf checks the factory, and returns what its vans can do; an error when it is not what f says.
func capsOf(f *Factory) (van.Caps, error) {
	if err := f.check(); err != nil {
		return van.Caps{}, err
	}
	v, err := f.New(noPlacer{}, func() {})
	if err != nil {
		return van.Caps{}, fmt.Errorf("vantest: %s: %w", f.Name, err)
	}
	caps := v.Caps()
	return caps, errors.Join(f.agrees(caps), v.Close())
}

// runCase runs one case, beside a watch that also ends a case which hangs in a call of the van.
func runCase(f Factory, c Clause, tc testCase) *Failure {
	done := make(chan *Failure, 1)
	go func() { done <- perform(f, c, tc) }()
	watch := time.NewTimer(f.Deadline + f.Deadline/2)
	defer watch.Stop()
	select {
	case found := <-done:
		return found
	case <-watch.C:
		return &Failure{c.Number, tc.name, "a method of the van, or of its endpoints, does not return"}
	}
}

func perform(f Factory, c Clause, tc testCase) *Failure {
	t := newTrial(f, c.Number, tc.name)
	defer t.cleanUp()
	func() {
		defer func() { t.keep(recover()) }()
		tc.run(t)
		t.finish()
	}()
	return t.found.Load()
}
