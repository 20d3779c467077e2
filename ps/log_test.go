package ps_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan/config"
	"github.com/stepvan/stepvan/ps"
)

// Scripts wait for one of these words in the log of the scheduler, whatever its form.
func TestTheSchedulerSaysThatItIsBound(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogJSON, config.LogConsole} {
		s := alone(t, ps.RoleScheduler)
		s.StartTimeout, s.LogLevel, s.LogFormat = 100*time.Millisecond, config.LogInfo, format
		cmd := command("scheduler", s)
		out, _ := cmd.CombinedOutput() // nobody joins
		for _, words := range []string{fmt.Sprintf("bound to port %d", s.RootPort), "Bind to", "SCHEDULER_READY", "waiting for 1 worker and 1 server"} {
			require.Contains(t, string(out), words)
		}
	}
}

// Every line has the role, and the rank once it is known.
func TestLinesSayWhoSpeaks(t *testing.T) {
	log := &journal{}
	c := start(t, overTCP, shape{workers: 1, servers: 1, opts: []ps.Option{ps.WithLogger(zerolog.New(log))}})
	c.stop()
	roles := map[string]int{}
	for sc := bufio.NewScanner(strings.NewReader(log.String())); sc.Scan(); {
		var line struct {
			Role    string
			Rank    *int
			Message string
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &line), sc.Text())
		require.NotEmpty(t, line.Role, sc.Text())
		require.Equal(t, line.Role != "scheduler", line.Rank != nil, sc.Text())
		if strings.Contains(line.Message, "has started") || strings.Contains(line.Message, "has stopped") {
			roles[line.Role]++
		}
	}
	require.Equal(t, map[string]int{"scheduler": 2, "server": 2, "worker": 2}, roles)
}

// What is odd in the environment is a line, what is wrong an error.
func TestStartFromEnvironment(t *testing.T) {
	s := alone(t, ps.RoleScheduler)
	s.StartTimeout, s.LogLevel, s.LogFormat = 100*time.Millisecond, config.LogInfo, config.LogConsole
	p := command("scheduler", s, "STEPVAN_VNA=tcp", "PS_RESEND=1")
	out, err := p.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	for _, w := range []string{"STEPVAN_VNA", "STEPVAN_VAN?", "PS_RESEND", "role=scheduler", "STEPVAN_START_TIMEOUT", "worker 0"} {
		require.Contains(t, string(out), w)
	}

	s.NumWorker, s.LogFormat = -5, config.LogJSON
	out, err = command("scheduler", s).CombinedOutput()
	require.ErrorAs(t, err, &exit)
	require.Contains(t, string(out), "DMLC_NUM_WORKER")
}
