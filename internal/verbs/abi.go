//go:build cgo

package verbs

// #include "abi.h"
import "C"

// The constants of this package have the values of the libraries: a difference is an index out of range.
var _ = [1]struct{}{}[0|
	int(OpWrite)^C.ABI_WR_RDMA_WRITE|
	int(OpWriteImmediate)^C.ABI_WR_RDMA_WRITE_WITH_IMM|
	int(OpSend)^C.ABI_WR_SEND|
	int(OpSendImmediate)^C.ABI_WR_SEND_WITH_IMM|
	int(OpRead)^C.ABI_WR_RDMA_READ|
	int(OpInvalidate)^C.ABI_WR_LOCAL_INV|
	int(OpSendInvalidate)^C.ABI_WR_SEND_WITH_INV|
	int(opBind)^C.ABI_WR_BIND_MW|
	int(Fence)^C.ABI_SEND_FENCE|
	int(Signaled)^C.ABI_SEND_SIGNALED|
	int(Solicited)^C.ABI_SEND_SOLICITED|
	int(Inline)^C.ABI_SEND_INLINE|
	int(LocalWrite)^C.ABI_ACCESS_LOCAL_WRITE|
	int(RemoteWrite)^C.ABI_ACCESS_REMOTE_WRITE|
	int(RemoteRead)^C.ABI_ACCESS_REMOTE_READ|
	int(BindWindows)^C.ABI_ACCESS_MW_BIND|
	int(RelaxedOrdering)^C.ABI_ACCESS_RELAXED_ORDERING|
	int(DoneSend)^C.ABI_WC_SEND|
	int(DoneWrite)^C.ABI_WC_RDMA_WRITE|
	int(DoneRead)^C.ABI_WC_RDMA_READ|
	int(DoneBind)^C.ABI_WC_BIND_MW|
	int(DoneInvalidate)^C.ABI_WC_LOCAL_INV|
	int(DoneReceive)^C.ABI_WC_RECV|
	int(DoneReceiveImmediate)^C.ABI_WC_RECV_RDMA_WITH_IMM|
	int(StatusSuccess)^C.ABI_WC_SUCCESS|
	int(StatusFlushed)^C.ABI_WC_WR_FLUSH_ERR|
	int(StatusRemoteAccess)^C.ABI_WC_REM_ACCESS_ERR|
	int(StatusRetryExceeded)^C.ABI_WC_RETRY_EXC_ERR|
	int(StatusNotReady)^C.ABI_WC_RNR_RETRY_EXC_ERR|
	int(StatusTimeout)^C.ABI_WC_RESP_TIMEOUT_ERR|
	int(ForkMarked)^C.ABI_FORK_ENABLED|
	int(ForkCopies)^C.ABI_FORK_UNNEEDED|
	int(InfiniBand)^C.ABI_TRANSPORT_IB|
	int(IWARP)^C.ABI_TRANSPORT_IWARP|
	int(PortActive)^C.ABI_PORT_ACTIVE|
	int(LinkInfiniBand)^C.ABI_LINK_LAYER_INFINIBAND|
	int(LinkEthernet)^C.ABI_LINK_LAYER_ETHERNET|
	int(GIDInfiniBand)^C.ABI_GID_TYPE_IB|
	int(GIDRoCEv1)^C.ABI_GID_TYPE_ROCE_V1|
	int(GIDRoCEv2)^C.ABI_GID_TYPE_ROCE_V2|
	int(EventCQError)^C.ABI_EVENT_CQ_ERR|
	int(EventQPFatal)^C.ABI_EVENT_QP_FATAL|
	int(EventQPRequest)^C.ABI_EVENT_QP_REQ_ERR|
	int(EventQPAccess)^C.ABI_EVENT_QP_ACCESS_ERR|
	int(EventEstablished)^C.ABI_EVENT_COMM_EST|
	int(EventDeviceFatal)^C.ABI_EVENT_DEVICE_FATAL|
	int(EventPortActive)^C.ABI_EVENT_PORT_ACTIVE|
	int(EventPortDown)^C.ABI_EVENT_PORT_ERR|
	int(EventLIDChanged)^C.ABI_EVENT_LID_CHANGE|
	int(EventLastReceived)^C.ABI_EVENT_QP_LAST_WQE_REACHED|
	int(EventGIDChanged)^C.ABI_EVENT_GID_CHANGE|
	int(QPReset)^C.ABI_QPS_RESET|
	int(QPInit)^C.ABI_QPS_INIT|
	int(QPReadyToReceive)^C.ABI_QPS_RTR|
	int(QPReadyToSend)^C.ABI_QPS_RTS|
	int(QPDrained)^C.ABI_QPS_SQD|
	int(QPSendError)^C.ABI_QPS_SQE|
	int(QPError)^C.ABI_QPS_ERR|
	int(AddressResolved)^C.ABI_CM_ADDR_RESOLVED|
	int(AddressError)^C.ABI_CM_ADDR_ERROR|
	int(RouteResolved)^C.ABI_CM_ROUTE_RESOLVED|
	int(RouteError)^C.ABI_CM_ROUTE_ERROR|
	int(ConnectRequest)^C.ABI_CM_CONNECT_REQUEST|
	int(ConnectError)^C.ABI_CM_CONNECT_ERROR|
	int(Unreachable)^C.ABI_CM_UNREACHABLE|
	int(Rejected)^C.ABI_CM_REJECTED|
	int(Established)^C.ABI_CM_ESTABLISHED|
	int(Disconnected)^C.ABI_CM_DISCONNECTED|
	int(DeviceRemoved)^C.ABI_CM_DEVICE_REMOVAL|
	int(AddressChanged)^C.ABI_CM_ADDR_CHANGE|
	int(TimeWaitExit)^C.ABI_CM_TIMEWAIT_EXIT]
