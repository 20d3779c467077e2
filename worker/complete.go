package worker

// All of these run under Worker.mu.

// answered ends the wait for the server of p.
func (w *Worker) answered(p *part) {
	c := p.call
	p.unlend()
	if p.answered { // given up while the response was being read
		w.settle(c)
		return
	}
	p.answered = true
	c.unanswered--
	if len(p.pulls) > 0 {
		c.last = p
		c.need--
	}
	c.pending--
	w.settle(c)
}

// abandon ends the wait for a lost server.
func (w *Worker) abandon(p *part) {
	if !p.answered {
		c := p.call
		w.drop(p)
		w.settle(c)
	}
}

// drop counts p as answered, and the call as failed where it still needed the
// server. A response that is being read is still waited for: it ends with Deliver or Abort.
func (w *Worker) drop(p *part) {
	p.answered = true
	if !p.done || len(p.pulls) > 0 {
		p.call.fail(p.server.lost)
	}
	p.call.unanswered--
	p.call.pending--
}

// unplace notes that nothing of the response is being written any more.
func (w *Worker) unplace(p *part) {
	if p.placing {
		p.placing = false
		p.call.placing--
	}
}

// settle does what is due after an event of c, which may be the last one: c must not be used afterwards.
func (w *Worker) settle(c *call) {
	ends := !c.finished && c.placing == 0 && (c.err != nil || c.need == 0)
	free := (c.finished || ends) && c.undone == 0 && c.placing == 0 && c.lent == 0
	if free {
		c.release() // before the handle is finished: who waits for it may close the memory at once
	}
	if ends {
		w.finish(c)
	}
	if free && c.err != nil {
		w.bury(c)
	}
	if c.unanswered == 0 {
		w.unclaim(c)
	}
	if c.pending == 0 && c.placing == 0 && c.lent == 0 {
		w.giveBack(c)
	}
}

// finish completes the handle.
func (w *Worker) finish(c *call) {
	c.finished = true
	if c.last == nil {
		c.last = c.parts[0]
	}
	rec := c.rec
	rec.Value.record(c)
	w.trace(c)
	c.rec = nil
	if c.err != nil {
		w.outlive(c)
	}
	w.results.Finish(rec, c.err)
}
