package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/rdma/device/devicelist"
)

// Validate finds every mistake in settings that a program has set itself; FromEnv
// has validated what it returns. The error joins one *stepvan.ConfigError per
// mistake, with the name of the variable as Key.
func (s Settings) Validate() error {
	c := checker{written: map[string]source{}, bad: map[string]bool{}}
	c.check(&s)
	return errors.Join(c.errs...)
}

// checker collects mistakes. A rule over several settings is skipped when one of
// them is wrong by itself, so that one mistake gives one error.
type checker struct {
	written map[string]source // by the row's name: what the user wrote
	bad     map[string]bool   // by the row's name
	errs    []error
}

// fail reports a mistake under the variable that the user wrote for the row called name.
func (c *checker) fail(name, reason string) {
	src, ok := c.written[name]
	if !ok {
		src.name = name
	}
	c.mistake(name, src, reason)
}

// mistake reports what is wrong with a variable of the row called name.
func (c *checker) mistake(name string, src source, reason string) {
	c.bad[name] = true
	c.errs = append(c.errs, &stepvan.ConfigError{Key: src.name, Value: src.value, Reason: reason})
}

// rule reports reason under the first of names unless fine; the names are the rows it depends on.
func (c *checker) rule(fine bool, reason string, names ...string) {
	for _, n := range names {
		if fine || c.bad[n] {
			return
		}
	}
	c.fail(names[0], reason)
	// The rows are fine by themselves: other rules over them still hold.
	delete(c.bad, names[0])
}

// author is the first of names that the user wrote, or the first name when the user wrote none.
func (c *checker) author(names ...string) string {
	for _, n := range names {
		if _, ok := c.written[n]; ok {
			return n
		}
	}
	return names[0]
}

// blame is rule, reported under the first of names that the user wrote.
func (c *checker) blame(fine bool, reason string, names ...string) {
	c.rule(fine, reason, append([]string{c.author(names...)}, names...)...)
}

func (c *checker) check(s *Settings) {
	for i := range table {
		f := &table[i]
		if c.bad[f.name] {
			continue
		}
		if err := f.inRange(f.at(s)); err != nil {
			c.fail(f.name, err.Error())
		}
	}
	c.checkCluster(s)
	c.checkIdentity(s)
	c.checkRequests(s)
	c.checkTransport(s)
	c.checkTime(s)
	c.checkDevices(s)
	c.rule(len(s.TraceFile) <= longestPath, fmt.Sprintf("must be a path of at most %d bytes", longestPath), "STEPVAN_TRACE_FILE")
}

func (c *checker) checkCluster(s *Settings) {
	const nw, ns, np, role = "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "STEPVAN_NUM_PEER", "DMLC_ROLE"
	isWorker, isServer := s.Role == stepvan.RoleWorker || s.Role == stepvan.RoleJoint, s.Role == stepvan.RoleServer || s.Role == stepvan.RoleJoint
	c.rule(!isWorker || s.NumWorker > 0, "must be at least 1 where DMLC_ROLE is "+string(s.Role), nw, role)
	c.rule(!isServer || s.NumServer > 0, "must be at least 1 where DMLC_ROLE is "+string(s.Role), ns, role)
	c.rule(s.Role != stepvan.RolePeer || s.NumPeer > 0, "must be at least 1 where DMLC_ROLE is peer", np, role)
	needed := isWorker || isServer || s.Role == stepvan.RolePeer // the number of the own role, so that has an error already
	c.rule(needed || s.NumWorker+s.NumServer+s.NumPeer > 0, "must be at least 1 when DMLC_NUM_SERVER and STEPVAN_NUM_PEER are 0", nw, ns, np)
	c.rule(s.RootPort > 0 || s.Role == stepvan.RoleScheduler, "must be the port of the scheduler, 1 to 65535; only the scheduler may have 0", "DMLC_PS_ROOT_PORT", role)
	c.host("DMLC_PS_ROOT_URI", s.RootURI, "set DMLC_PS_ROOT_PORT to the port")
	c.host("DMLC_NODE_HOST", s.NodeHost, "set DMLC_PORT to the port")
	c.rule(len(s.Interface) <= longestInterface && !strings.ContainsAny(s.Interface, "/ \t\n"), "must be the name of a network interface, as `ip link` shows it, or auto", "DMLC_INTERFACE")
}

// The longest texts, in bytes.
const (
	longestHost      = 253  // that DNS can hold
	longestInterface = 127  // name of a network interface, of Linux
	longestPath      = 4095 // that Linux opens
)

// host finds addresses that carry more than a host.
func (c *checker) host(name, host, portHint string) {
	c.rule(len(host) <= longestHost, fmt.Sprintf("must be a host name or address of at most %d bytes", longestHost), name)
	c.rule(!strings.Contains(host, "://"), "must be a host name or address without scheme", name)
	c.rule(strings.Contains(host, "://") || !strings.ContainsAny(host, "/ \t\n\"'[]"), "must be one host name or address", name)
	c.rule(strings.Contains(host, "://") || strings.Count(host, ":") != 1, "must be a host name or address without port: "+portHint, name)
}

func (c *checker) checkRequests(s *Settings) {
	const batch, least, routing = "STEPVAN_BATCH", "STEPVAN_BATCH_MIN", "STEPVAN_ROUTING"
	c.rule(s.Batch != BatchLockstep || s.Routing == stepvan.Broadcast,
		"lock-step batches need a request from every worker, which only STEPVAN_ROUTING=broadcast sends: set STEPVAN_BATCH=any or k", batch, routing)
	c.rule(s.Batch != BatchK || s.BatchMin > 0, "must be at least 1 with STEPVAN_BATCH=k", least, batch)
	c.rule(s.Batch == BatchK || s.BatchMin == 0, "has a meaning with STEPVAN_BATCH=k only: set that, or unset this", least, batch)
	paired := s.pairedWorkers()
	c.rule(s.Batch != BatchK || s.BatchMin <= paired || paired == 0, fmt.Sprintf("must be at most %d, the workers paired with a server", paired),
		least, batch, "DMLC_NUM_WORKER", "DMLC_GROUP_SIZE", "STEPVAN_PAIRING")
}

func (c *checker) checkTransport(s *Settings) {
	c.blame(s.RDMAQPs*s.RDMAPorts <= 8, "a connection has at most 8 queue pairs in all: lower one of the two", "STEPVAN_RDMA_QPS", "STEPVAN_RDMA_PORTS")
	c.blame(!s.RDMAWindows || s.RDMAQPs*s.RDMAPorts <= 1, "memory windows serve one queue pair each: unset STEPVAN_RDMA_WINDOWS, or set 1", "STEPVAN_RDMA_QPS", "STEPVAN_RDMA_PORTS", "STEPVAN_RDMA_WINDOWS")
	c.rule(!s.Local || s.Van != VanRDMA && s.Van != VanShmRDMA, "RDMA needs a network, which DMLC_LOCAL=1 forbids: unset DMLC_LOCAL, or set STEPVAN_VAN=auto", "STEPVAN_VAN", "DMLC_LOCAL")
	c.rule(s.Port == 0 || s.Port+s.NumPorts-1 <= 65535, "with DMLC_NUM_PORTS the last port is beyond 65535", "DMLC_PORT", "DMLC_NUM_PORTS")
	last := s.Port + s.NumPorts - 1
	c.rule(s.Port == 0 || s.Role != stepvan.RoleScheduler || s.RootPort < s.Port || s.RootPort > last, "the data ports, DMLC_NUM_PORTS of them, include DMLC_PS_ROOT_PORT, on which the scheduler listens: set another", "DMLC_PORT", "DMLC_PS_ROOT_PORT", "DMLC_NUM_PORTS", "DMLC_ROLE")
	c.atMost("STEPVAN_SMALL_BYTES", s.SmallBytes, "STEPVAN_PIECE_BYTES", s.PieceBytes)
	c.atMost("STEPVAN_PIECE_BYTES", s.PieceBytes, "STEPVAN_CREDIT_BYTES", s.CreditBytes)
	c.atMost("STEPVAN_PIECE_BYTES", s.PieceBytes, "STEPVAN_POOL_BYTES", s.PoolBytes)
	binds, _ := s.Binds()
	c.rule(!binds || s.CPUCoresPerGPU <= s.CPUCoresPerSocket, "must be at most STEPMESH_CPU_CORES_PER_SOCKET",
		"STEPMESH_CPU_CORES_PER_GPU", "STEPMESH_CPU_CORES_PER_SOCKET", "STEPMESH_BIND_CPU_CORE")
}

func (c *checker) checkDevices(s *Settings) {
	var syntax *devicelist.SyntaxError
	if _, err := devicelist.Parse(s.RDMADevices); errors.As(err, &syntax) {
		c.rule(false, syntax.Reason, "STEPVAN_RDMA_DEVICES")
	}
}

// atMost reports small under its own name, or under large's when only that was written.
func (c *checker) atMost(small string, a Bytes, large string, b Bytes) {
	if c.author(small, large) == large { // large was set, small was not
		c.rule(a <= b, fmt.Sprintf("must be at least %s, which is %s", small, a), large, small)
		return
	}
	c.rule(a <= b, fmt.Sprintf("must be at most %s, which is %s", large, b), small, large)
}

func (c *checker) checkTime(s *Settings) {
	const interval, timeout = "PS_HEARTBEAT_INTERVAL", "PS_HEARTBEAT_TIMEOUT"
	c.rule(s.HeartbeatInterval == 0 || s.HeartbeatInterval >= time.Millisecond, "an interval below 1ms is only noise: set at least 0.001, or 0 for off", c.author(interval, timeout))
	c.rule((s.HeartbeatInterval == 0) == (s.HeartbeatTimeout == 0), "must be 0 exactly when PS_HEARTBEAT_INTERVAL is 0: both off, or both on", timeout, interval)
	c.rule(s.HeartbeatInterval == 0 || s.HeartbeatTimeout == 0 || s.HeartbeatTimeout > s.HeartbeatInterval,
		"must be greater than PS_HEARTBEAT_INTERVAL, which is "+formatDuration(s.HeartbeatInterval)+": three times as much is usual", timeout, interval)
}
