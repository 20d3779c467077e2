package rdma_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/stepvan/stepvan/internal/pairtest"
	"github.com/stepvan/stepvan/rdma"
	"github.com/stepvan/stepvan/tensor"
)

// row is a row of the table in docs/rdma.md that says what the memory of a tensor costs.
type row struct{ operation, memory, goesTo, moved, copies, roundTrips string }

// tableOfMemory reads the table.
func tableOfMemory(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("../docs/rdma.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| operation | memory | goes to | moved | copies | round trips |\n")
	require.True(t, found, "the table is not there, or has other columns")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 6 {
			if strings.HasPrefix(line, "|--") {
				continue
			}
			return rows
		}
		rows = append(rows, row{strings.TrimPrefix(cells[0], "| "), cells[1], cells[2], cells[3], cells[4], strings.TrimSuffix(cells[5], " |")})
	}
	return rows
}

// The table is true: each row is an exchange, and what the devices did for it is counted.
func TestTheTableOfMemory(t *testing.T) {
	rows := tableOfMemory(t)
	require.Len(t, rows, 10)
	for _, r := range rows {
		t.Run(r.operation+" "+r.memory+" to "+r.goesTo, func(t *testing.T) {
			x := newLayer(t, 1, rowBytes, rowBytes)
			play := x.play(t, r)
			play() // which tells the peer of grants
			fromServer, fromWorker := x.counts()
			play()
			server, workers := x.counts()
			sender, receiver := workers.Since(fromWorker), server.Since(fromServer)
			if r.operation != "push" {
				sender, receiver = receiver, sender
			}
			moved, copies, roundTrips := costOfPayload(t, sender, receiver)
			if r.operation == "RespondCopy" {
				copies++ // into pooled memory
			}
			require.Equal(t, r, row{r.operation, r.memory, r.goesTo, moved, string(rune('0' + copies)), roundTrips})
		})
	}
}

const rowBytes = 1 << 20

// costOfPayload says what a payload of rowBytes has cost, and requires that it went one way as a whole.
func costOfPayload(t *testing.T, sender, receiver rdma.Counts) (moved string, copies int, roundTrips string) {
	t.Helper()
	require.Equal(t, uint64(rowBytes), sender.Written+receiver.Fetched+sender.Streamed)
	require.Equal(t, receiver.Fetched > 0, receiver.Reads > 0)
	require.Zero(t, sender.Reads)
	switch uint64(rowBytes) {
	case sender.Written:
		return "written", 0, "½"
	case receiver.Fetched:
		require.Contains(t, []uint64{0, rowBytes}, receiver.Staged)
		return "fetched", int(receiver.Staged / rowBytes), "1½"
	default:
		require.Equal(t, uint64(rowBytes), sender.Streamed)
		return "streamed", 2, "½" // into slots, and out of them
	}
}

// play returns a function that does the exchange of a row.
func (x *layer) play(t *testing.T, r row) func() {
	w, s := x.cluster.Workers[0], x.cluster.Servers[0]
	ask := &x.asks[0]
	if r.operation == "push" {
		push := rowTensor(t, w.Memory, r.memory)
		ask.Push, ask.PushKeys, ask.Pull, ask.PullKeys = List(push), Keys(pushKey), nil, nil
		if r.goesTo == "pooled memory" {
			ask.PushKeys = Keys(pushKey + 1)
		} else {
			require.Equal(t, "a receive buffer", r.goesTo)
		}
		x.answers[0] = nil
		return func() {
			x.ask()
			require.True(t, bytes.Equal(push.Bytes(), x.batch.Requests[0].Pushes()[0].Bytes()))
			x.answer()
			x.wait()
		}
	}
	goesTo, found := strings.CutPrefix(r.goesTo, "a pull tensor, ")
	require.True(t, found, r.goesTo)
	answer, pull := rowTensor(t, s.Memory, r.memory), rowTensor(t, w.Memory, goesTo)
	ask.Push, ask.PushKeys, ask.Pull = nil, nil, List(pull)
	x.answers[0] = List(answer)
	return func() {
		clear(pull.Bytes())
		x.ask()
		if r.operation == "RespondCopy" {
			_, borrowed, err := s.RespondCopy(x.answers[0], x.batch.Requests[0].ID)
			require.NoError(t, err)
			require.False(t, borrowed)
		} else {
			require.Equal(t, "respond", r.operation)
			x.answer()
		}
		x.wait()
		require.True(t, bytes.Equal(answer.Bytes(), pull.Bytes()))
	}
}

// rowTensor is a tensor with random content in memory of the kind that a row names.
func rowTensor(t *testing.T, m *tensor.Allocator, memory string) (x tensor.Tensor) {
	t.Helper()
	switch memory {
	case "registered":
		x = zeros(t, m, rowBytes)
	case "not registered":
		var err error
		x, err = tensor.FromBytes(tensor.Uint8, tensor.ShapeOf(rowBytes), make([]byte, rowBytes))
		require.NoError(t, err)
	default:
		require.Fail(t, "a kind of memory that the test does not know", memory)
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(x.Bytes())
	return x
}
