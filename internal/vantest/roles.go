package vantest

import "syscall"

// roles are what a peer process can play. They end when the parent's side is gone.
var roles = map[string]func(*probe, *side){
	"echo":    echo,
	"flood":   flood,
	"sleeper": sleeper,
	"leaver":  leave,
}

func (s *side) gone() bool { return s.count().lost }

// echo sends every message back: as large, with as much meta.
func echo(p *probe, s *side) {
	s.endangered()
	var todo []shape
	s.peek = func(a *arrival) {
		todo = append(todo, shape{size: int(a.d.Header.Payload), meta: len(a.d.Meta), segments: 1 + int(a.sequence)%3})
	}
	s.parts = 3
	p.until("the parent to leave", func() bool {
		for len(todo) > 0 && s.offer(todo[0]) == nil {
			todo = todo[1:]
		}
		return s.gone()
	})
}

// flood sends for ever.
func flood(p *probe, s *side) {
	s.endangered()
	p.until("the parent to leave", func() bool {
		// What Send completes by itself wakes nobody: as long as nothing is refused there is no reason to sleep.
		for n := 1; !s.gone() && p.ctx.Err() == nil; n++ {
			if s.offer(shape{size: p.rng.IntN(20 * kib), meta: p.rng.IntN(100), segments: 2}) != nil {
				break
			}
			if n%10 == 0 {
				p.poll(true)
			}
		}
		return s.gone()
	})
}

// sleeper takes one message and then reads nothing any more.
func sleeper(p *probe, s *side) {
	s.endangered()
	p.until("a first message", func() bool { return s.count().delivered > 0 })
	s.n.detached.Store(true)
	<-p.ctx.Done()
}

const parting = 200 // messages of a leaver

// leave sends a number of messages, waits for their completions, and closes.
func leave(p *probe, s *side) {
	for range parting {
		s.send(shape{size: p.rng.IntN(10 * kib), meta: 20})
	}
	p.until("completions", s.idle)
	s.close()
}

var crossing = []testCase{
	{name: "ping-pong between processes", run: pingPong, need: needProcess},
	{name: "a stream between processes", run: streamAcross, need: needProcess},
}

func init() { clause03.cases = append(clause03.cases, crossing...) }

func pingPong(p *probe) {
	c := p.startPeer("echo")
	s := p.node(16).dialPeer(c)
	sizes := append(p.sizes(), 3*mib+1, 16*mib)
	for range 2 {
		for _, size := range sizes {
			s.send(shape{size: size, meta: size % 500, segments: 1 + size%3})
			p.until("an echo", func() bool { return s.count().delivered == s.count().sent })
		}
	}
	for range 2000 {
		s.send(shape{size: 8, meta: 8})
		p.until("an echo", func() bool { return s.count().delivered == s.count().sent })
	}
	s.endangered()
	s.close()
	c.exits()
}

func streamAcross(p *probe) {
	c := p.startPeer("echo")
	s := p.node(16).dialPeer(c)
	for _, shape := range p.mix(5000, 64*kib) {
		s.send(shape)
	}
	p.until("all echoes", func() bool { return s.idle() && s.count().delivered == s.count().sent })
	s.endangered()
	s.close()
	c.exits()
}

// stoppedProcess stops the peer as a debugger would. The queue fills, nothing is
// lost, and everything arrives when the peer continues.
func stoppedProcess(p *probe) {
	c := p.startPeer("echo")
	s := p.node(16).dialPeer(c)
	s.send(shape{size: 10})
	p.until("a first echo", func() bool { return s.count().delivered == 1 })
	c.signal(syscall.SIGSTOP)
	s.stuff(shape{size: 64 * kib, meta: 10})
	p.want(!s.count().lost, "a stopped peer was declared lost")
	c.signal(syscall.SIGCONT)
	p.until("all echoes after the peer continues", func() bool { return s.idle() && s.count().delivered == s.count().sent })
	s.endangered()
	s.close()
	c.exits()
}

func killedFlooder(p *probe) {
	c := p.startPeer("flood")
	s := p.node(16).dialPeer(c)
	for range 20 {
		s.try(shape{size: 100 * kib, meta: 10})
	}
	p.until("messages of a peer that floods", func() bool { return s.count().delivered > 300 })
	s.endangered()
	c.killed()
	s.sees(p)
}

func killedSleeper(p *probe) {
	c := p.startPeer("sleeper")
	n := p.node(16)
	s := n.dialPeer(c)
	s.stuff(shape{size: 256 * kib, meta: 10})
	s.endangered()
	c.killed()
	s.sees(p)
}

// sees waits for the one EventLost of a killed peer; the books check what comes before and after.
func (s *side) sees(p *probe) {
	p.until("EventLost of a killed peer", func() bool { return s.count().lost })
	p.want(s.idle(), "EventLost came before the completions")
	p.want(s.offer(shape{size: 1}) != nil, "Send to a lost peer was accepted")
	p.quiet()
}

func leaver(p *probe) {
	c := p.startPeer("leaver")
	s := p.node(16).dialPeer(c)
	s.endangered()
	p.until("EventLost of a peer that leaves", func() bool { return s.count().lost })
	p.want(s.count().delivered == parting, "the peer completed %d messages before it closed, %d arrived", parting, s.count().delivered)
	c.exits()
}
