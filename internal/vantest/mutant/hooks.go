package mutant

import "github.com/stepvan/stepvan/van"

// rewrite returns the events with others in place of those of one kind: fn says which.
func rewrite(events []van.Event, kind van.EventKind, fn func(van.Event) []van.Event) (out []van.Event) {
	for _, ev := range events {
		if ev.Kind == kind {
			out = append(out, fn(ev)...)
		} else {
			out = append(out, ev)
		}
	}
	return out
}

// replace has fn say what is reported in place of the events of one kind.
func (v *mutantVan) replace(kind van.EventKind, fn func(van.Event) []van.Event) {
	v.onEvents = func(events []van.Event) []van.Event { return rewrite(events, kind, fn) }
}

// edit makes a mutation that changes the events of one kind.
func edit(kind van.EventKind, change func(*mutantVan, *van.Event)) func(*mutantVan) {
	return func(v *mutantVan) {
		v.replace(kind, func(ev van.Event) []van.Event {
			change(v, &ev)
			return []van.Event{ev}
		})
	}
}

// when chooses events.
type when func(*mutantVan, van.Event) bool

// every chooses each n-th event.
func every(n int) when { return func(v *mutantVan, _ van.Event) bool { return v.every(n) } }

// drop makes a mutation that hides events of one kind.
func drop(kind van.EventKind, chosen when) func(*mutantVan) {
	return report(kind, chosen, func(ev van.Event) []van.Event {
		if ev.Delivery != nil {
			ev.Delivery.Release()
		}
		return nil
	})
}

// repeat makes a mutation that reports events of one kind twice.
func repeat(kind van.EventKind, chosen when) func(*mutantVan) {
	return report(kind, chosen, func(ev van.Event) []van.Event {
		again := ev
		if ev.Delivery != nil {
			again.Delivery = clone(ev.Delivery)
		}
		return []van.Event{ev, again}
	})
}

// report makes a mutation that reports something else instead of the chosen events of one kind.
func report(kind van.EventKind, chosen when, instead func(van.Event) []van.Event) func(*mutantVan) {
	return func(v *mutantVan) {
		v.replace(kind, func(ev van.Event) []van.Event {
			if chosen(v, ev) {
				return instead(ev)
			}
			return []van.Event{ev}
		})
	}
}

// swap makes a mutation that exchanges neighbours of one endpoint when the first is of one kind and the second of
// another, and chosen.
func swap(first, second van.EventKind, chosen when) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onEvents = func(events []van.Event) []van.Event {
			for i := 1; i < len(events); i++ {
				a, b := &events[i-1], &events[i]
				if a.Kind == first && b.Kind == second && a.Endpoint == b.Endpoint && chosen(v, *b) {
					*a, *b = *b, *a
				}
			}
			return events
		}
	}
}

// sent is a message that the inner van was asked to send.
type sent struct {
	*endpoint
	m   *van.Message
	op  van.OpID // of m
	err error    // of the inner Send
}

// afterSend makes a mutation that says what Send returns.
func afterSend(fn func(sent) error) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			op := m.Op
			return fn(sent{e, m, op, e.Endpoint.Send(m)})
		}
	}
}

// beforeSend makes a mutation that changes messages.
func beforeSend(change func(*van.Message)) func(*mutantVan) {
	return func(v *mutantVan) {
		v.onSend = func(e *endpoint, m *van.Message) error {
			change(m)
			return e.Endpoint.Send(m)
		}
	}
}
