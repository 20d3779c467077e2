package postoffice

// ownConn is the conn of the scheduler to itself: it resolves the calls of this process.
type ownConn struct {
	conn
	calls *barrierCalls
	board *Board
}

func (l *ownConn) post(f frame) {
	switch f.op {
	case opReleased:
		l.calls.resolve(f.request, nil)
	case opBroken:
		_ = l.calls.broken(f, "") // this process has encoded it
	case opPosted, opNotPosted, opBoard:
		_ = l.board.deliver(f)
	}
}

func (l *ownConn) pump() {}
