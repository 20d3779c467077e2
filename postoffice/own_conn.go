package postoffice

// ownConn is the conn of the scheduler to itself: it resolves the barrier calls of this process.
type ownConn struct {
	conn
	calls *barrierCalls
}

func (l *ownConn) post(f frame) {
	switch f.op {
	case opReleased:
		l.calls.resolve(f.request, nil)
	case opBroken:
		var b failure
		if err := decode(f, &b); err != nil {
			l.calls.resolve(f.request, err)
			return
		}
		l.calls.resolve(f.request, b.err("barrier", ""))
	}
}

func (l *ownConn) pump() {}
