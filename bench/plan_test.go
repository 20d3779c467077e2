package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stepvan/stepvan"
)

func TestMatrix(t *testing.T) {
	plan, err := Matrix{
		Base: Options{Rounds: 5}, Workloads: []Workload{Echo, AFD}, Vans: []Van{TCP, Mem},
		Progresses: []string{"auto", "park"}, Workers: []int{1, 2}, Pushes: []Size{8, 16}, Pulls: []Size{32, 64},
	}.Plan()
	require.NoError(t, err)
	require.Len(t, plan, 8, "workloads, workers, sizes")
	for _, group := range plan {
		require.Len(t, group, 4, "vans and progress")
		for _, o := range group {
			require.Equal(t, 5, o.Rounds)
			require.Equal(t, 4*o.Push-o.Push/16*0, o.Pull)
		}
	}
	require.Equal(t, Options{Workload: Echo, Van: TCP, Workers: 1, Push: 8, Pull: 32, Progress: "auto", Rounds: 5}, plan[0][0])
	require.Equal(t, Options{Workload: AFD, Van: Mem, Workers: 2, Push: 16, Pull: 64, Progress: "park", Rounds: 5}, plan[7][3])

	plan, err = Matrix{Base: Options{Van: Mem}}.Plan()
	require.NoError(t, err)
	require.Equal(t, Plan{{{Van: Mem}}}, plan)
	_, err = Matrix{Pushes: []Size{1, 2, 3}, Pulls: []Size{1, 2}}.Plan()
	require.ErrorIs(t, err, stepvan.ErrInvalid)
	require.ErrorContains(t, err, "--pull has 2 sizes and --push 3")
}

func TestSweep(t *testing.T) {
	sizes := SweepSizes()
	require.Equal(t, []Size{8, 64, 512, 4 << 10}, sizes[:4])
	require.Equal(t, Size(1<<30), sizes[len(sizes)-1])
}

func TestMeasurementsThatNeedMoreMemoryThanThereIs(t *testing.T) {
	small, large := Options{Van: Mem}, Options{Van: Mem, Push: 1 << 30}
	require.Greater(t, large.memory(), int64(5<<30))
	require.Less(t, small.memory(), int64(100<<20))
	p := Plan{{small, large, large}, {small, small}}
	require.Equal(t, p, p.fitting(0), "unknown")
	require.Equal(t, p, p.fitting(100<<30))
	require.Equal(t, Plan{{small}, {large}, {large}, {small, small}}, p.fitting(8<<30))
	huge := Options{Van: Mem, Push: 1 << 39}
	got, err := Plan{{huge}}.Run(t.Context(), Watch{})
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, ErrTooLarge)
	require.ErrorContains(t, got[0].Err, "mem echo 1w1s 512GiB/512GiB needs")
}

func TestMissingMeasurements(t *testing.T) {
	have, err := Matrix{Vans: []Van{TCP, Mem}, Pushes: []Size{8, 16}}.Plan()
	require.NoError(t, err)
	wanted, err := Matrix{Vans: []Van{TCP, Shm}, Pushes: []Size{8, 32}}.Plan()
	require.NoError(t, err)
	require.Equal(t, Plan{{{Van: Shm, Push: 8}}, {{Van: TCP, Push: 32}, {Van: Shm, Push: 32}}}, have.Missing(wanted))
	require.Empty(t, have.Missing(have))
	require.Equal(t, wanted, Plan(nil).Missing(wanted))
}
