package verbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func none() error { return nil }

func TestResources(t *testing.T) {
	g := &registry{trace: true}
	var device, domain, region resource
	require.NoError(t, g.create("open", &device, "device d", nil, none))
	require.NoError(t, g.create("alloc_pd", &domain, "domain of d", []*resource{&device}, none))
	require.NoError(t, g.create("reg_mr", &region, "region of d", []*resource{&domain}, none))
	require.Len(t, g.objects(), 3)
	require.Contains(t, g.objects()[0].Stack, "TestResources")

	calls := 0
	count := func() error { calls++; return nil }
	require.EqualError(t, device.close(count), "close: device d: domain of d still uses it: close first what uses it")
	require.ErrorIs(t, domain.close(count), stepvan.ErrBusy)
	require.Zero(t, calls)

	failure := errors.New("busy")
	require.ErrorIs(t, region.close(func() error { return failure }), failure)
	require.Len(t, g.objects(), 3)
	for _, r := range []*resource{&region, &domain, &device} {
		require.NoError(t, r.close(count))
		require.NoError(t, r.close(count))
	}
	require.Equal(t, 3, calls)
	require.Empty(t, g.objects())
	require.NoError(t, new(resource).close(count))

	var late resource
	err := g.create("alloc_pd", &late, "domain of d", []*resource{&device}, count)
	require.ErrorIs(t, err, stepvan.ErrClosed)
	require.ErrorContains(t, err, "alloc_pd: device d: ")
}

func TestFailedCreationLeavesNothing(t *testing.T) {
	g := new(registry)
	var device, domain resource
	require.NoError(t, g.create("open", &device, "device d", nil, none))
	failure := errors.New("no memory")
	require.ErrorIs(t, g.create("alloc_pd", &domain, "domain of d", []*resource{&device}, func() error { return failure }), failure)
	require.NoError(t, device.close(none))
	require.Empty(t, g.objects())
}

func TestResourcesOfTwoLibraries(t *testing.T) {
	g, other := new(registry), new(registry)
	var device, domain resource
	require.NoError(t, g.create("open", &device, "device d", nil, none))
	require.ErrorIs(t, other.create("alloc_pd", &domain, "domain", []*resource{&device}, none), stepvan.ErrInvalid)
}
