/* What this package uses of the binary interfaces of libibverbs.so.1 and librdmacm.so.1. The names of fields are those
 * of the systems' headers, and testdata/abi.c holds all of it against them. Layouts of structs that a library makes
 * end with the last field that is used here. */
#ifndef STEPVAN_VERBS_ABI_H
#define STEPVAN_VERBS_ABI_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

_Static_assert(sizeof(void *) == 8, "pointers are 8 bytes long, so that 64-bit fields stand for them");

/* Work requests and completions. Pointers in what Go writes are numbers. */

enum {
	ABI_WR_RDMA_WRITE = 0,
	ABI_WR_RDMA_WRITE_WITH_IMM = 1,
	ABI_WR_SEND = 2,
	ABI_WR_SEND_WITH_IMM = 3,
	ABI_WR_RDMA_READ = 4,
	ABI_WR_LOCAL_INV = 7,
	ABI_WR_BIND_MW = 8,
	ABI_WR_SEND_WITH_INV = 9,

	ABI_SEND_FENCE = 1,
	ABI_SEND_SIGNALED = 2,
	ABI_SEND_SOLICITED = 4,
	ABI_SEND_INLINE = 8,

	ABI_WC_SUCCESS = 0,
	ABI_WC_WR_FLUSH_ERR = 5,
	ABI_WC_REM_ACCESS_ERR = 10,
	ABI_WC_RETRY_EXC_ERR = 12,
	ABI_WC_RNR_RETRY_EXC_ERR = 13,
	ABI_WC_RESP_TIMEOUT_ERR = 20,
	ABI_WC_GENERAL_ERR = 21,

	ABI_WC_SEND = 0,
	ABI_WC_RDMA_WRITE = 1,
	ABI_WC_RDMA_READ = 2,
	ABI_WC_BIND_MW = 5,
	ABI_WC_LOCAL_INV = 6,
	ABI_WC_RECV = 128,
	ABI_WC_RECV_RDMA_WITH_IMM = 129,

	ABI_WC_WITH_IMM = 2,
	ABI_WC_WITH_INV = 8,

	ABI_ACCESS_LOCAL_WRITE = 1,
	ABI_ACCESS_REMOTE_WRITE = 2,
	ABI_ACCESS_REMOTE_READ = 4,
	ABI_ACCESS_MW_BIND = 16,
	ABI_ACCESS_RELAXED_ORDERING = 1 << 20,
	ABI_ACCESS_OPTIONAL_RANGE = 0x3ff00000,
};

struct abi_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct abi_send_wr {
	uint64_t wr_id;
	uint64_t next;
	uint64_t sg_list;
	int32_t num_sge;
	uint32_t opcode;
	uint32_t send_flags;
	uint32_t imm_data; /* in the order of the network; or the key that is invalidated, in that of the machine */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t unused[7];
	uint64_t bind_mw;
	uint32_t bind_rkey;
	uint64_t bind_mr;
	uint64_t bind_addr;
	uint64_t bind_length;
	uint32_t bind_access;
};

struct abi_recv_wr {
	uint64_t wr_id;
	uint64_t next;
	uint64_t sg_list;
	int32_t num_sge;
};

struct abi_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

/* Devices. The fast functions of a device are in the ops of its context, and have no symbols. */

enum {
	ABI_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
	ABI_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,

	ABI_PORT_ACTIVE = 4,

	ABI_MTU_256 = 1,
	ABI_MTU_4096 = 5,

	ABI_LINK_LAYER_INFINIBAND = 1,
	ABI_LINK_LAYER_ETHERNET = 2,

	ABI_TRANSPORT_IB = 0,
	ABI_TRANSPORT_IWARP = 1,

	ABI_GID_TYPE_IB = 0,
	ABI_GID_TYPE_ROCE_V1 = 1,
	ABI_GID_TYPE_ROCE_V2 = 2,

	ABI_FORK_DISABLED = 0,
	ABI_FORK_ENABLED = 1,
	ABI_FORK_UNNEEDED = 2,

	ABI_EVENT_CQ_ERR = 0,
	ABI_EVENT_QP_FATAL = 1,
	ABI_EVENT_QP_REQ_ERR = 2,
	ABI_EVENT_QP_ACCESS_ERR = 3,
	ABI_EVENT_COMM_EST = 4,
	ABI_EVENT_PATH_MIG_ERR = 7,
	ABI_EVENT_DEVICE_FATAL = 8,
	ABI_EVENT_PORT_ACTIVE = 9,
	ABI_EVENT_PORT_ERR = 10,
	ABI_EVENT_LID_CHANGE = 11,
	ABI_EVENT_SRQ_ERR = 14,
	ABI_EVENT_QP_LAST_WQE_REACHED = 16,
	ABI_EVENT_GID_CHANGE = 18,
};

struct abi_device {
	void *ops[2];
	int32_t node_type;
	int32_t transport_type;
	char name[64];
	char dev_name[64];
	char dev_path[256];
	char ibdev_path[256];
};

struct abi_ops {
	void *to_alloc_mw[7];
	void *(*alloc_mw)(void *pd, int type);
	void *bind_mw;
	int (*dealloc_mw)(void *mw);
	void *to_poll_cq[1];
	int (*poll_cq)(void *cq, int entries, struct abi_wc *wc);
	int (*req_notify_cq)(void *cq, int solicited_only);
	void *to_post_send[12];
	int (*post_send)(void *qp, struct abi_send_wr *wr, struct abi_send_wr **bad);
	int (*post_recv)(void *qp, struct abi_recv_wr *wr, struct abi_recv_wr **bad);
	void *to_end[5];
};

struct abi_context {
	struct abi_device *device;
	struct abi_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

struct abi_device_attr {
	char fw_ver[64];
	uint64_t node_guid; /* in the order of the network */
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int32_t max_qp;
	int32_t max_qp_wr;
	uint32_t device_cap_flags;
	int32_t max_sge;
	int32_t max_sge_rd;
	int32_t max_cq;
	int32_t max_cqe;
	int32_t max_mr;
	int32_t max_pd;
	int32_t max_qp_rd_atom;
	int32_t max_ee_rd_atom;
	int32_t max_res_rd_atom;
	int32_t max_qp_init_rd_atom;
	int32_t max_ee_init_rd_atom;
	int32_t atomic_cap;
	int32_t max_ee;
	int32_t max_rdd;
	int32_t max_mw;
	int32_t max_raw_ipv6_qp;
	int32_t max_raw_ethy_qp;
	int32_t max_mcast_grp;
	int32_t max_mcast_qp_attach;
	int32_t max_total_mcast_qp_attach;
	int32_t max_ah;
	int32_t max_fmr;
	int32_t max_map_per_fmr;
	int32_t max_srq;
	int32_t max_srq_wr;
	int32_t max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct abi_port_attr {
	int32_t state;
	int32_t max_mtu;
	int32_t active_mtu;
	int32_t gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct abi_gid_entry {
	uint8_t gid[16];
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
};

struct abi_async_event {
	union {
		void *cq;
		void *qp;
		int port_num;
	} element;
	int32_t event_type;
};

/* Memory. */

enum { ABI_MW_TYPE_2 = 2 };

struct abi_mr {
	void *context;
	void *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct abi_mw {
	void *context;
	void *pd;
	uint32_t rkey;
};

/* Queues. */

enum {
	ABI_QPT_RC = 2,

	ABI_QPS_RESET = 0,
	ABI_QPS_INIT = 1,
	ABI_QPS_RTR = 2,
	ABI_QPS_RTS = 3,
	ABI_QPS_SQD = 4,
	ABI_QPS_SQE = 5,
	ABI_QPS_ERR = 6,

	ABI_QP_STATE = 1 << 0,
	ABI_QP_ACCESS_FLAGS = 1 << 3,
	ABI_QP_PKEY_INDEX = 1 << 4,
	ABI_QP_PORT = 1 << 5,
	ABI_QP_AV = 1 << 7,
	ABI_QP_PATH_MTU = 1 << 8,
	ABI_QP_TIMEOUT = 1 << 9,
	ABI_QP_RETRY_CNT = 1 << 10,
	ABI_QP_RNR_RETRY = 1 << 11,
	ABI_QP_RQ_PSN = 1 << 12,
	ABI_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	ABI_QP_MIN_RNR_TIMER = 1 << 15,
	ABI_QP_SQ_PSN = 1 << 16,
	ABI_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	ABI_QP_CAP = 1 << 19,
	ABI_QP_DEST_QPN = 1 << 20,
};

struct abi_comp_channel {
	void *context;
	int fd;
};

struct abi_cq {
	struct abi_context *context;
	void *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct abi_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct abi_qp_init_attr {
	void *qp_context;
	void *send_cq;
	void *recv_cq;
	void *srq;
	struct abi_qp_cap cap;
	int32_t qp_type;
	int32_t sq_sig_all;
};

struct abi_global_route {
	uint64_t dgid[2];
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct abi_ah_attr {
	struct abi_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct abi_qp_attr {
	int32_t qp_state;
	int32_t cur_qp_state;
	int32_t path_mtu;
	int32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	uint32_t qp_access_flags;
	struct abi_qp_cap cap;
	struct abi_ah_attr ah_attr;
	struct abi_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct abi_qp {
	struct abi_context *context;
	void *qp_context;
	void *pd;
	void *send_cq;
	void *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
};

/* Connections. */

enum {
	ABI_RDMA_PS_TCP = 0x0106,

	ABI_RDMA_OPTION_ID = 0,
	ABI_RDMA_OPTION_ID_TOS = 0,
	ABI_RDMA_OPTION_ID_REUSEADDR = 1,
	ABI_RDMA_OPTION_ID_ACK_TIMEOUT = 3,

	ABI_CM_ADDR_RESOLVED = 0,
	ABI_CM_ADDR_ERROR = 1,
	ABI_CM_ROUTE_RESOLVED = 2,
	ABI_CM_ROUTE_ERROR = 3,
	ABI_CM_CONNECT_REQUEST = 4,
	ABI_CM_CONNECT_RESPONSE = 5,
	ABI_CM_CONNECT_ERROR = 6,
	ABI_CM_UNREACHABLE = 7,
	ABI_CM_REJECTED = 8,
	ABI_CM_ESTABLISHED = 9,
	ABI_CM_DISCONNECTED = 10,
	ABI_CM_DEVICE_REMOVAL = 11,
	ABI_CM_ADDR_CHANGE = 14,
	ABI_CM_TIMEWAIT_EXIT = 15,
};

struct abi_event_channel {
	int fd;
};

struct abi_cm_id {
	struct abi_context *verbs;
	void *channel;
	void *context;
	struct abi_qp *qp;
	struct sockaddr_storage src_storage;
	struct sockaddr_storage dst_storage;
	uint8_t sgid[16];
	uint8_t dgid[16];
	uint16_t pkey;
	void *path_rec;
	int num_paths;
	int unused;
	int32_t ps;
	uint8_t port_num;
};

struct abi_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct abi_cm_event {
	struct abi_cm_id *id;
	struct abi_cm_id *listen_id;
	int32_t event;
	int32_t status;
	struct abi_conn_param conn;
};

#endif
