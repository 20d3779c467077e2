//go:build !cgo

package verbs

import (
	"net/netip"
	"time"
)

// This file stands for all files that need cgo. Load refuses, so no object is ever made, and no method is reached.

// Load returns ErrNotInBuild.
func Load(Options) (*Library, error) { return nil, ErrNotInBuild }

// The objects of RDMA, which cannot be made in this build.
type (
	Library           struct{}
	Device            struct{}
	PD                struct{}
	MR                struct{}
	MW                struct{}
	CompletionChannel struct{}
	CQ                struct{}
	Completions       struct{}
	SendChain         struct{}
	ReceiveChain      struct{}
	QP                struct{}
	EventChannel      struct{}
	ID                struct{}
)

func (*Library) Fork() ForkSafety               { return 0 }
func (*Library) Live() []Object                 { return nil }
func (*Library) Devices() ([]DeviceInfo, error) { return nil, ErrNotInBuild }
func (*Library) Open(string) (*Device, error)   { return nil, ErrNotInBuild }

func (*Device) Name() string                         { return "" }
func (*Device) Close() error                         { return ErrNotInBuild }
func (*Device) Query() (DeviceAttributes, error)     { return DeviceAttributes{}, ErrNotInBuild }
func (*Device) Port(int) (PortAttributes, error)     { return PortAttributes{}, ErrNotInBuild }
func (*Device) GID(int, int) (GIDEntry, bool, error) { return GIDEntry{}, false, ErrNotInBuild }
func (*Device) EventFD() int                         { return 0 }
func (*Device) Event() (Event, bool, error)          { return Event{}, false, ErrNotInBuild }
func (*Device) NewPD() (*PD, error)                  { return nil, ErrNotInBuild }

func (*PD) Device() *Device                               { return nil }
func (*PD) Close() error                                  { return ErrNotInBuild }
func (*PD) Register(uintptr, uint64, Access) (*MR, error) { return nil, ErrNotInBuild }
func (*PD) RegisterDMABuf(int, uint64, uint64, uintptr, Access) (*MR, error) {
	return nil, ErrNotInBuild
}

func (*MR) LocalKey() LocalKey   { return 0 }
func (*MR) RemoteKey() RemoteKey { return 0 }
func (*MR) Addr() uintptr        { return 0 }
func (*MR) Length() uint64       { return 0 }
func (*MR) Close() error         { return ErrNotInBuild }

func (*PD) NewMW() (*MW, error) { return nil, ErrNotInBuild }

func (*MW) Key() RemoteKey { return 0 }
func (*MW) Close() error   { return ErrNotInBuild }

func (*Device) NewCompletionChannel() (*CompletionChannel, error) { return nil, ErrNotInBuild }

func (*CompletionChannel) FD() int            { return 0 }
func (*CompletionChannel) Next() (*CQ, error) { return nil, ErrNotInBuild }
func (*CompletionChannel) Close() error       { return ErrNotInBuild }

func (*Device) NewCQ(int, *CompletionChannel, int) (*CQ, error) { return nil, ErrNotInBuild }

func (*CQ) Size() int                      { return 0 }
func (*CQ) Arm(bool) error                 { return ErrNotInBuild }
func (*CQ) Poll(*Completions) (int, error) { return 0, ErrNotInBuild }
func (*CQ) Close() error                   { return ErrNotInBuild }

func (*Library) NewCompletions(int) (*Completions, error) { return nil, ErrNotInBuild }

func (*Completions) At(int) Completion { return Completion{} }
func (*Completions) Close() error      { return ErrNotInBuild }

func (*Library) NewSendChain(int, int) (*SendChain, error) { return nil, ErrNotInBuild }

func (*SendChain) Len() int                      { return 0 }
func (*SendChain) Room() int                     { return 0 }
func (*SendChain) Reset()                        {}
func (*SendChain) Add(Request, ...Segment) error { return ErrNotInBuild }
func (*SendChain) Bind(uint64, Flags, *MW, *MR, uintptr, uint64, Access) (RemoteKey, error) {
	return 0, ErrNotInBuild
}
func (*SendChain) Close() error { return ErrNotInBuild }

func (*Library) NewReceiveChain(int, int) (*ReceiveChain, error) { return nil, ErrNotInBuild }

func (*ReceiveChain) Len() int                     { return 0 }
func (*ReceiveChain) Room() int                    { return 0 }
func (*ReceiveChain) Reset()                       {}
func (*ReceiveChain) Add(uint64, ...Segment) error { return ErrNotInBuild }
func (*ReceiveChain) Close() error                 { return ErrNotInBuild }

func (*PD) NewQP(QPOptions) (*QP, error) { return nil, ErrNotInBuild }

func (*QP) Number() QPNumber                       { return 0 }
func (*QP) Caps() QPCaps                           { return QPCaps{} }
func (*QP) PostSend(*SendChain) (int, error)       { return 0, ErrNotInBuild }
func (*QP) PostReceive(*ReceiveChain) (int, error) { return 0, ErrNotInBuild }
func (*QP) Counters() Counters                     { return Counters{} }
func (*QP) Init(int, Access) error                 { return ErrNotInBuild }
func (*QP) ReadyToReceive(Path) error              { return ErrNotInBuild }
func (*QP) ReadyToSend(Path) error                 { return ErrNotInBuild }
func (*QP) Fail() error                            { return ErrNotInBuild }
func (*QP) Query() (QPState, QPCaps, error)        { return 0, QPCaps{}, ErrNotInBuild }
func (*QP) UseLAGPort(int) error                   { return ErrNotInBuild }
func (*QP) Close() error                           { return ErrNotInBuild }

func (*Library) NewEventChannel() (*EventChannel, error) { return nil, ErrNotInBuild }

func (*EventChannel) FD() int { return 0 }
func (*EventChannel) Next() (ConnectionEvent, bool, error) {
	return ConnectionEvent{}, false, ErrNotInBuild
}
func (*EventChannel) Close() error        { return ErrNotInBuild }
func (*EventChannel) NewID() (*ID, error) { return nil, ErrNotInBuild }

func (*ID) Bind(netip.AddrPort) error                                   { return ErrNotInBuild }
func (*ID) Resolve(netip.AddrPort, netip.AddrPort, time.Duration) error { return ErrNotInBuild }
func (*ID) ResolveRoute(time.Duration) error                            { return ErrNotInBuild }
func (*ID) Listen(int) error                                            { return ErrNotInBuild }
func (*ID) NewQP(*PD, QPOptions) (*QP, error)                           { return nil, ErrNotInBuild }
func (*ID) Connect(ConnectionParameters) error                          { return ErrNotInBuild }
func (*ID) Accept(ConnectionParameters) error                           { return ErrNotInBuild }
func (*ID) Reject([]byte) error                                         { return ErrNotInBuild }
func (*ID) Disconnect() error                                           { return ErrNotInBuild }
func (*ID) SetTypeOfService(uint8) error                                { return ErrNotInBuild }
func (*ID) SetAckTimeout(uint8) error                                   { return ErrNotInBuild }
func (*ID) SetReuseAddress() error                                      { return ErrNotInBuild }
func (*ID) Migrate(*EventChannel) error                                 { return ErrNotInBuild }
func (*ID) DeviceName() string                                          { return "" }
func (*ID) Port() int                                                   { return 0 }
func (*ID) Local() netip.AddrPort                                       { return netip.AddrPort{} }
func (*ID) Peer() netip.AddrPort                                        { return netip.AddrPort{} }
func (*ID) Close() error                                                { return ErrNotInBuild }
