package main

// #include "boundary.h"
import "C"

import (
	"context"
	"time"

	"github.com/stepvan/stepvan/bus"
	"github.com/stepvan/stepvan/capi/internal/numbers"
)

// agent is a number from stepvan_agent to stepvan_agent_close.
type agent struct {
	node *node
	live *bus.Agent
}

const (
	// agentTime is how long the board may take to show an agent.
	agentTime = 30 * time.Second
	// agentEndTime is how long an agent may take to end with its node.
	agentEndTime = 5 * time.Second
)

// goAgent implements
//
//	int32_t stepvan_agent(uint64_t node, const char *path, uint64_t queue, uint64_t *agent, stepvan_error *error);
//
//export goAgent
func goAgent(id cUint64, path *C.char, queue cUint64, number *cUint64, e *cError) cCode {
	return onPeer(id, e, func(n *node) error {
		switch {
		case path == nil || number == nil:
			return isNull("path and agent")
		case queue > maxList:
			return invalid("queue: that many commands cannot wait (got %d, want at most %d)", queue, uint64(maxList))
		}
		if err := n.checkRunning(); err != nil {
			return err
		}
		a, err := n.startAgent(C.GoString(path), int(queue))
		if err != nil {
			return err
		}
		id := agents.Put(a)
		if id == 0 {
			_ = a.end(agentEndTime)
			return tooMany("agents")
		}
		*number = cUint64(id)
		return nil
	})
}

func (n *node) startAgent(path string, queue int) (*agent, error) {
	ctx, cancel := context.WithTimeout(context.Background(), agentTime)
	defer cancel()
	live := n.live.Load()
	a, err := bus.NewAgent(ctx, n.peer, live.Board(), bus.Options{
		Queue: queue, Memory: live.Memory(), Recover: func() {
			if v := recover(); v != nil {
				_ = live.Panicked(v, "serve the tensor bus")
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if _, err := a.Listen(path); err != nil {
		_ = a.Close(ctx)
		return nil, err
	}
	return &agent{n, a}, nil
}

// goAgentClose implements
//
//	int32_t stepvan_agent_close(uint64_t agent, int64_t timeout_ns, stepvan_error *error);
//
//export goAgentClose
func goAgentClose(number cUint64, limit cInt64, e *cError) cCode {
	return half(e, func() error {
		a, ok := agents.Take(numbers.ID(number))
		if !ok {
			return missing(&agents, "agent", "was closed", number)
		}
		return a.end(duration(limit))
	})
}

// end ends the agent.
func (a *agent) end(limit time.Duration) error {
	ctx, cancel := limited(limit)
	defer cancel()
	return a.live.Close(ctx)
}
