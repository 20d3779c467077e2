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
		_ = l.calls.broken(f, "") // this process has encoded it
	}
}

func (l *ownConn) pump() {}
