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
	c.last = p
	c.unanswered--
	c.need--
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

// drop counts p, which its server has not answered, as answered, and the call as failed. A response that is being read
// is still waited for: it ends with Deliver or Abort.
func (w *Worker) drop(p *part) {
	p.answered = true
	p.call.fail(p.server.lost)
	p.call.unanswered--
	p.call.pending--
}

// read notes that a response to p is on its way in, which refers to p until endRead.
func (p *part) read() {
	p.reading = true
	p.call.reading++
}

// place notes that the response is read into the pull tensors.
func (p *part) place() {
	p.placing = true
	p.call.placing++
}

// endRead notes that nothing of the response is being read any more. settle follows.
func (p *part) endRead() {
	p.reading = false
	p.call.reading--
	if p.placing {
		p.placing = false
		p.call.placing--
	}
}

// settle does what is due after an event of c, which may be the last one: c must not be used afterwards.
func (w *Worker) settle(c *call) {
	ends := !c.finished && c.placing == 0 && (c.err != nil || c.need == 0)
	if ends && len(c.sums) > 0 {
		w.checkSums(c)
	}
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
	if c.pending == 0 && c.reading == 0 && c.lent == 0 {
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
	rec.Value.call = nil
	w.trace(c)
	c.rec = nil
	if c.err != nil {
		w.outlive(c)
	}
	w.results.Finish(rec, c.err)
}
