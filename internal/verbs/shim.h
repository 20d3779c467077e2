/* What the Go half calls. Functions that return int return 0 or an errno, and those that return a pointer NULL with
 * errno set. No function calls Go, and none keeps memory of Go. The functions of the data path take addresses as
 * numbers. Of each pointer cgo asks whether it is one of Go, which takes a fifth of the time of an empty poll. */
#ifndef STEPVAN_VERBS_SHIM_H
#define STEPVAN_VERBS_SHIM_H

#include "abi.h"

/* Opens the libraries once. Later calls return the first result: NULL, or what is wrong. */
const char *sv_load(void);

/* The same with other names, always anew, and without effect on the functions below. For tests. */
const char *sv_try_load(const char *ibverbs, const char *rdmacm);

/* An ABI_FORK value for what a fork of this process does to registered memory, after libibverbs was told to care;
 * negative: an errno. Call it before the first registration. */
int sv_fork(void);

/* Devices. A list belongs to the caller, until free. */
struct sv_device {
	const struct abi_device *of;
	uint64_t guid; /* in the order of the network */
};
void **sv_device_list(int *n);
struct sv_device sv_device_at(void **list, int i);
void sv_free_device_list(void **list);
struct abi_context **sv_contexts(int *n); /* those of librdmacm, which stay open */
void sv_free_contexts(struct abi_context **list);
int sv_query_device(struct abi_context *context, struct abi_device_attr *attr);
int sv_query_port(struct abi_context *context, int port, struct abi_port_attr *attr);
int sv_query_gid(struct abi_context *context, int port, int index, struct abi_gid_entry *entry);
int sv_async_event(struct abi_context *context, struct abi_async_event *event);
void sv_ack_async_event(struct abi_async_event *event); /* the object of the event lives until then */

/* Memory. */
void *sv_alloc_pd(struct abi_context *context);
struct abi_mr *sv_reg_mr(void *pd, uintptr_t addr, uint64_t length, uint32_t access);
struct abi_mr *sv_reg_dmabuf(void *pd, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access);
struct abi_mw *sv_alloc_mw(struct abi_context *context, void *pd);

/* Queues. */
struct abi_comp_channel *sv_create_channel(struct abi_context *context);
struct abi_cq *sv_create_cq(struct abi_context *context, int entries, void *channel, int vector);
struct abi_cq *sv_cq_event(struct abi_comp_channel *channel);
void sv_ack_cq_events(struct abi_cq *cq, unsigned int n);
int sv_arm(uintptr_t cq, int solicited_only);
int sv_poll(uintptr_t cq, uintptr_t wc, int n); /* how many, or a negative errno */

/* A queue pair and what went through it. One thread posts to each side, others read the counts. */
struct sv_counts {
	uint64_t doorbells, requests, signaled, reads, bytes;
	uint64_t receive_doorbells, receives;
};
struct sv_qp {
	struct abi_qp *qp;
	struct abi_cm_id *id; /* that made it, or NULL */
	struct abi_qp_cap cap; /* as given, not as asked for */
	struct sv_counts counts;
};
struct sv_qp *sv_create_qp(void *pd, struct abi_cm_id *id, const struct abi_qp_init_attr *attr);
int sv_modify_qp(struct sv_qp *qp, struct abi_qp_attr *attr, int mask);
int sv_query_qp(struct sv_qp *qp, struct abi_qp_attr *attr, int mask);
int sv_destroy_qp(struct sv_qp *qp); /* frees it, if it succeeds */
int sv_lag_port(struct sv_qp *qp, uint8_t port); /* ENOSYS: no library for it */

/* Chains of requests. Count says how many are linked. The sums are what sv_post_send adds to the counts of a queue
 * pair that took them all. */
struct sv_send_chain {
	struct abi_send_wr *first;
	uint64_t count, signaled, reads, bytes;
};
struct sv_recv_chain {
	struct abi_recv_wr *first;
	uint64_t count;
};

/* How many requests were posted, times 2^32, and an errno. */
int64_t sv_post_send(uintptr_t qp, uintptr_t chain);
int64_t sv_post_recv(uintptr_t qp, uintptr_t chain);

/* Connections. */
struct abi_event_channel *sv_create_event_channel(void);
struct abi_cm_id *sv_create_id(struct abi_event_channel *channel);
int sv_bind(struct abi_cm_id *id, const void *address);
int sv_resolve_addr(struct abi_cm_id *id, const void *source, const void *destination, int ms);
int sv_resolve_route(struct abi_cm_id *id, int ms);
int sv_listen(struct abi_cm_id *id, int backlog);
int sv_connect(struct abi_cm_id *id, struct abi_conn_param param, const void *private_data);
int sv_accept(struct abi_cm_id *id, struct abi_conn_param param, const void *private_data);
int sv_reject(struct abi_cm_id *id, const void *private_data, uint8_t length);
int sv_disconnect(struct abi_cm_id *id);
int sv_migrate(struct abi_cm_id *id, struct abi_event_channel *channel);
int sv_set_option(struct abi_cm_id *id, int option, int value);

/* An event, copied. The connection of the event lives until the event is acknowledged. */
struct sv_cm_event {
	struct abi_cm_id *id, *listen_id;
	int32_t event, status;
	struct abi_conn_param conn;
	uint8_t private_data[256];
};
struct abi_cm_event *sv_cm_event(struct abi_event_channel *channel, struct sv_cm_event *copy);
void sv_ack_cm_event(struct abi_cm_event *event);

/* The ends of objects. */
enum sv_kind { SV_PD, SV_MR, SV_MW, SV_CHANNEL, SV_CQ, SV_EVENT_CHANNEL, SV_ID };
int sv_destroy(enum sv_kind kind, void *object);

int sv_nonblocking(int fd);

#endif
