// Package replay brings batches of experience from collectors to a learner. Any number of collectors, in any process of
// the cluster, pick rows from their own buffers. They write the rows into shared memory of the learner, which takes no
// part in that.
//
// # Slots
//
// A [Ring] has slots, two by default. One is hot: the learner reads it. The next one is cold: collectors fill it
// meanwhile. A slot holds one batch: a matrix of rows with the columns of a [Layout]. On an accelerator each slot has a
// twin there ([Device]), and the learner reads the twin.
//
// # States
//
// A slot has these states, and goes back to the first one when the learner takes the batch:
//
//	idle       nobody has asked for a batch
//	requested  the collectors were asked for their rows
//	submitted  all rows are there, and the copy to the twin has begun
//	ready      the copy has ended
//
// [Ring.StartPrepare] asks for the batch of a tick. [Ring.Sample] takes it and makes its slot hot. [Ring.AfterTick]
// gives the hot slot back. A failure stays until the learner begins a tick again.
//
// # Messages
//
// The ring asks each collector by mail for a share of the rows (type ask). The ask names the tick, the seed, the slot
// and its window, and the rows of the share. The collector picks rows from its [Buffer] by the seed ([Pick]). Where its
// process sees the slot, it writes them there at once ([peer.Library.PutMade]). Elsewhere a part is picked while the
// one before travels. The note of its last Put says which rows are whole (type note). A collector that cannot do it
// says why by mail (type refusal). A batch is complete when notes have named each of its rows once.
//
// The picks of a batch follow from its seed and the size of the buffer alone. So collectors with equal buffers give the
// same batch, whichever of them packs a row. torch's generator picks other rows. A ring in Python says which picks it
// wants.
//
// # Loss
//
// When a collector dies, the ring asks the others for all rows of the batch again. The slot gets other memory then: a
// process that was declared dead may only have been stopped, and may still write. Without another collector the tick
// fails with an error that names those that died.
//
// # Threads
//
// Any goroutine may call everything here. One goroutine of a ring looks for collectors that have died, and one of a
// collector packs rows. The driver of the node calls the listeners of both. No mutex is held while package peer is
// called.
//
// # Memory
//
// A ring takes its slots from an allocator, and frees them in Close. A batch is the program's from Sample to AfterTick.
// A buffer is memory of the Go heap.
package replay
