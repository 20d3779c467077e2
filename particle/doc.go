// Package particle runs particles: modules that live at devices, and that send each other messages. It schedules the
// hooks for the messages, and moves what they carry. What a hook computes is the program's matter.
//
//   - A [Loop] is at each peer. It has devices, and the particles that live there.
//   - [Loop.Create] places a particle. The driver alone does that, and all loops acknowledge it.
//   - [Loop.Send] and [Call.Send] send a message. A [Future] stands for the result.
//   - [Loop.Get] gets a view of the parameters of a particle, which its loop has given to [Loop.Share].
//   - A [Cache] keeps some modules at a device, and brings the others when they are needed.
//
// # Turns and chains
//
// A device has one turn. The hook that runs has it. A hook that waits with [Call.Wait] gives it back, and takes it
// again when its futures are done. So a wait never occupies a device, and particles may wait for each other in circles.
//
// A message that is sent outside of hooks begins a chain. What its hook sends belongs to the same chain, and so on. The
// turn goes to these, in this order:
//
//	nested   calls whose chain has a hook at this device that has not ended
//	resumed  hooks whose wait is over
//	fresh    all other calls
//
// Each of them is in the order of arrival. Nested calls go first, because hooks wait for them. Resumed hooks go before
// fresh calls, so that few hooks are open at a time. The messages of one loop to another arrive in their order, with
// one exception: a nested call passes calls of other chains.
//
// A call carries the calls that it is nested in. So a hook that would wait for its own result gets an error, also where
// the way leads over other loops. A circle of waits over several chains and loops is not found: give waits a limit.
//
// # Goroutines of hooks
//
// Goroutines of the loop run hooks. A device has two of them, and more while hooks wait. One waits for calls of its own
// process, and leaves the processor to others. The other one drives the node, and so reads a call of another loop by
// itself. With [Options].Pull the program has threads of its own in [Loop.Next].
//
// # Values
//
// A value has bytes and tensors. Up to 32 KiB of both travel in the message. Larger ones travel as transfers of package
// peer, with tags from 2^62 on, which belong to this package. A value is copied when it is sent, unless its tensors are
// lent. Frames are checked before anything of them is used (FuzzFrame).
//
// Pickled values are for decoders that run code, as Python's pickle. They continuely to a loop that allows them. It
// takes them from processes of the same user on the same machine. From others it takes those with a seal, which needs
// [Options].Key. A seal covers the frame, the bytes, and a number that grows. A loop refuses any other pickled value
// before anybody reads it.
//
// # Views
//
// A view is of one moment: no hook of the device runs when it goes out. In the process of the particle it is the memory
// itself, and also in other processes that can map it. Elsewhere it is a copy. The loop counts the views that are out.
// A program asks [Loop.Views] before it writes. While there are any, it writes to other memory and shares that.
//
// # Threads, memory and loss
//
// Loop.mu guards the state of a loop. Nobody holds it while a hook runs, and what it wakes is woken after the unlock.
// The driver of the node (package progress) calls Loop.came for each frame.
//
// Values that a program gets are valid until the hook ends, or the future is forgotten. The memory of values, and of
// shares that are replaced, goes back to its owner when nobody reaches it any more.
//
// The end of a connection ends the loop behind it, for this loop: a message might have got lost. Futures that need it
// fail with its name. Others continue.
package particle
