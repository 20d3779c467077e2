package postoffice

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestDecodeRefuses(t *testing.T) {
	long := strings.Repeat("x", maxSetting+1)
	for name, tc := range map[string]struct {
		v    any
		body string
	}{
		"no JSON":             {&joinBody{}, `{`},
		"wrong type":          {&joinBody{}, `{"role":"worker","rank":"x"}`},
		"role of none":        {&joinBody{}, `{"rank":1}`},
		"role of two":         {&joinBody{}, `{"role":"joint"}`},
		"role of many":        {&joinBody{}, `{"role":"peers"}`},
		"scheduler joins":     {&joinBody{}, `{"role":"scheduler"}`},
		"rank below":          {&joinBody{}, `{"role":"worker","rank":-2}`},
		"rank beyond ids":     {&joinBody{}, `{"role":"worker","rank":1000000001}`},
		"instance":            {&joinBody{}, `{"role":"worker","instance":-7}`},
		"long setting":        {&joinBody{}, `{"role":"worker","shared":[{"name":"` + long + `"}]}`},
		"control in address":  {&joinBody{}, `{"role":"worker","addresses":["tcp://\u001b"]}`},
		"quote in address":    {&joinBody{}, `{"role":"worker","addresses":["tcp://\""]}`},
		"empty address":       {&joinBody{}, `{"role":"worker","addresses":[""]}`},
		"addresses too large": {&joinBody{}, `{"role":"worker","addresses":[` + strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("a", 500)+`",`, 100), ",") + `]}`},
		"epoch 0":             {&startBody{}, `{"self":{"id":3,"role":"worker"},"peers":1}`},
		"node without id":     {&peersBody{}, `{"nodes":[{"role":"server"}]}`},
		"scheduler gone":      {&goneBody{}, `{"nodes":[{"id":1,"role":"scheduler"}]}`},
		"too large":           {&waitingBody{}, `{"text":"` + strings.Repeat("a", maxMessage) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var p *stepvan.ProtocolError
			require.ErrorAs(t, decode(frame{body: []byte(tc.body)}, tc.v), &p)
		})
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	var b joinBody
	require.NoError(t, decode(frame{body: []byte(`{"role":"worker","rank":3,"later":{"x":[1]}}`)}, &b))
	require.EqualValues(t, 3, b.Rank)
}

func TestTextIsCleaned(t *testing.T) {
	var b waitingBody
	require.NoError(t, decode(encode(opWaiting, 0, waitingBody{Text: "a\x1b[2J\n" + strings.Repeat("b", 5000)}), &b))
	require.Equal(t, "a [2J bb", b.Text[:8])
	require.LessOrEqual(t, len(b.Text), maxText)
}

func TestPartsFitIntoMessages(t *testing.T) {
	var nodes []Peer
	for i := range 400 {
		n := Peer{ID: nodeID(stepvan.RoleServer, stepvan.Rank(i)), Role: stepvan.RoleServer, Rank: stepvan.Rank(i), NodeRank: i, GroupSize: 1, Host: strings.Repeat("h", i%maxHost)}
		for range i % 90 {
			n.Addresses = append(n.Addresses, strings.Repeat("<", maxAddress))
		}
		nodes = append(nodes, n)
	}
	var got []Peer
	for _, part := range pages(nodes) {
		f := encode(opPeers, 0, map[string]any{"nodes": part})
		require.LessOrEqual(t, len(f.body), maxMessage)
		var b peersBody
		require.NoError(t, decode(f, &b))
		got = append(got, b.Nodes...)
	}
	require.Equal(t, nodes, got)
	require.Empty(t, pages([]Peer{}))
}

func TestFailureKinds(t *testing.T) {
	for _, kind := range []string{failRefused, failTimeout, failLost, failClosed, "of a later version"} {
		f := failure{Kind: kind, Text: "why"}
		err := f.err("join", "scheduler")
		require.ErrorIs(t, err, f.sentinel())
		require.ErrorContains(t, err, "join with scheduler: ")
		require.ErrorContains(t, err, "why")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"role":"worker","rank":3,"instance":-1,"group":2,"addresses":["tcp://a:1"],"shared":[{"name":"A","value":"1"}]}`))
	f.Add([]byte(`{"self":{"id":3,"role":"worker"},"epoch":1,"peers":2}`))
	f.Add([]byte(`{"nodes":[{"id":2,"role":"server","rank":0,"left":true,"reason":"x"}],"epoch":7}`))
	f.Add([]byte(`{"group":6,"instances":true}`))
	f.Add([]byte(`{"key":"a","value":"AA==","prefix":"b"}`))
	f.Add([]byte(`{"reset":true,"removed":["a"],"entries":[{"key":"b","value":"AA==","order":1,"owner":{"id":1,"role":"scheduler"}}],"more":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, v := range []any{&joinBody{}, &failure{}, &waitingBody{}, &startBody{}, &peersBody{}, &barrierKey{}, &goneBody{}, &postBody{}, &removeBody{}, &watchBody{}, &boardBody{}} {
			if decode(frame{body: body}, v) != nil {
				continue
			}
			// What is accepted can be told on.
			again, err := json.Marshal(v)
			require.NoError(t, err)
			if len(again) <= maxMessage {
				require.NoError(t, decode(frame{body: again}, v))
			}
		}
	})
}
