/* Compiles where abi.h says what the headers of the system say. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../abi.h"

#define VALUE(name) _Static_assert((long)ABI_##name == (long)IBV_##name, #name)
#define CM_VALUE(name) _Static_assert((long)ABI_CM_##name == (long)RDMA_CM_EVENT_##name, #name)
#define RDMA_VALUE(name) _Static_assert((long)ABI_##name == (long)name, #name)

/* A struct that this side makes has the size of theirs; one that they make may be longer than what is declared. */
#define SIZE(ours, theirs) _Static_assert(sizeof(struct ours) == sizeof(struct theirs), #theirs)
#define MADE_BY_THEM(ours, theirs) _Static_assert(sizeof(struct ours) <= sizeof(struct theirs), #theirs)

#define FIELD_AS(ours, f, theirs, g) \
	_Static_assert(offsetof(struct ours, f) == offsetof(struct theirs, g), #theirs "." #g ": offset"); \
	_Static_assert(sizeof(((struct ours *)0)->f) == sizeof(((struct theirs *)0)->g), #theirs "." #g ": size")
#define FIELD(s, f) FIELD_AS(abi_##s, f, ibv_##s, f)
#define CM_FIELD(s, f) FIELD_AS(abi_##s, f, rdma_##s, f)

VALUE(WR_RDMA_WRITE);
VALUE(WR_RDMA_WRITE_WITH_IMM);
VALUE(WR_SEND);
VALUE(WR_SEND_WITH_IMM);
VALUE(WR_RDMA_READ);
VALUE(WR_LOCAL_INV);
VALUE(WR_BIND_MW);
VALUE(WR_SEND_WITH_INV);
VALUE(SEND_FENCE);
VALUE(SEND_SIGNALED);
VALUE(SEND_SOLICITED);
VALUE(SEND_INLINE);
VALUE(WC_SUCCESS);
VALUE(WC_WR_FLUSH_ERR);
VALUE(WC_REM_ACCESS_ERR);
VALUE(WC_RETRY_EXC_ERR);
VALUE(WC_RNR_RETRY_EXC_ERR);
VALUE(WC_RESP_TIMEOUT_ERR);
VALUE(WC_GENERAL_ERR);
VALUE(WC_SEND);
VALUE(WC_RDMA_WRITE);
VALUE(WC_RDMA_READ);
VALUE(WC_BIND_MW);
VALUE(WC_LOCAL_INV);
VALUE(WC_RECV);
VALUE(WC_RECV_RDMA_WITH_IMM);
VALUE(WC_WITH_IMM);
VALUE(WC_WITH_INV);
VALUE(ACCESS_LOCAL_WRITE);
VALUE(ACCESS_REMOTE_WRITE);
VALUE(ACCESS_REMOTE_READ);
VALUE(ACCESS_MW_BIND);
VALUE(ACCESS_RELAXED_ORDERING);
VALUE(ACCESS_OPTIONAL_RANGE);
VALUE(DEVICE_MEM_WINDOW_TYPE_2A);
VALUE(DEVICE_MEM_WINDOW_TYPE_2B);
VALUE(PORT_ACTIVE);
VALUE(MTU_256);
VALUE(MTU_4096);
VALUE(LINK_LAYER_INFINIBAND);
VALUE(LINK_LAYER_ETHERNET);
VALUE(TRANSPORT_IB);
VALUE(TRANSPORT_IWARP);
VALUE(GID_TYPE_IB);
VALUE(GID_TYPE_ROCE_V1);
VALUE(GID_TYPE_ROCE_V2);
VALUE(FORK_DISABLED);
VALUE(FORK_ENABLED);
VALUE(FORK_UNNEEDED);
VALUE(EVENT_CQ_ERR);
VALUE(EVENT_QP_FATAL);
VALUE(EVENT_QP_REQ_ERR);
VALUE(EVENT_QP_ACCESS_ERR);
VALUE(EVENT_COMM_EST);
VALUE(EVENT_PATH_MIG_ERR);
VALUE(EVENT_DEVICE_FATAL);
VALUE(EVENT_PORT_ACTIVE);
VALUE(EVENT_PORT_ERR);
VALUE(EVENT_LID_CHANGE);
VALUE(EVENT_SRQ_ERR);
VALUE(EVENT_QP_LAST_WQE_REACHED);
VALUE(EVENT_GID_CHANGE);
VALUE(MW_TYPE_2);
VALUE(QPT_RC);
VALUE(QPS_RESET);
VALUE(QPS_INIT);
VALUE(QPS_RTR);
VALUE(QPS_RTS);
VALUE(QPS_SQD);
VALUE(QPS_SQE);
VALUE(QPS_ERR);
VALUE(QP_STATE);
VALUE(QP_ACCESS_FLAGS);
VALUE(QP_PKEY_INDEX);
VALUE(QP_PORT);
VALUE(QP_AV);
VALUE(QP_PATH_MTU);
VALUE(QP_TIMEOUT);
VALUE(QP_RETRY_CNT);
VALUE(QP_RNR_RETRY);
VALUE(QP_RQ_PSN);
VALUE(QP_MAX_QP_RD_ATOMIC);
VALUE(QP_MIN_RNR_TIMER);
VALUE(QP_SQ_PSN);
VALUE(QP_MAX_DEST_RD_ATOMIC);
VALUE(QP_CAP);
VALUE(QP_DEST_QPN);
RDMA_VALUE(RDMA_PS_TCP);
RDMA_VALUE(RDMA_OPTION_ID);
RDMA_VALUE(RDMA_OPTION_ID_TOS);
RDMA_VALUE(RDMA_OPTION_ID_REUSEADDR);
RDMA_VALUE(RDMA_OPTION_ID_ACK_TIMEOUT);
CM_VALUE(ADDR_RESOLVED);
CM_VALUE(ADDR_ERROR);
CM_VALUE(ROUTE_RESOLVED);
CM_VALUE(ROUTE_ERROR);
CM_VALUE(CONNECT_REQUEST);
CM_VALUE(CONNECT_RESPONSE);
CM_VALUE(CONNECT_ERROR);
CM_VALUE(UNREACHABLE);
CM_VALUE(REJECTED);
CM_VALUE(ESTABLISHED);
CM_VALUE(DISCONNECTED);
CM_VALUE(DEVICE_REMOVAL);
CM_VALUE(ADDR_CHANGE);
CM_VALUE(TIMEWAIT_EXIT);

SIZE(abi_sge, ibv_sge);
FIELD(sge, addr);
FIELD(sge, length);
FIELD(sge, lkey);

SIZE(abi_send_wr, ibv_send_wr);
FIELD(send_wr, wr_id);
FIELD(send_wr, next);
FIELD(send_wr, sg_list);
FIELD(send_wr, num_sge);
FIELD(send_wr, opcode);
FIELD(send_wr, send_flags);
FIELD(send_wr, imm_data);
FIELD_AS(abi_send_wr, imm_data, ibv_send_wr, invalidate_rkey);
FIELD_AS(abi_send_wr, remote_addr, ibv_send_wr, wr.rdma.remote_addr);
FIELD_AS(abi_send_wr, rkey, ibv_send_wr, wr.rdma.rkey);
FIELD_AS(abi_send_wr, bind_mw, ibv_send_wr, bind_mw.mw);
FIELD_AS(abi_send_wr, bind_rkey, ibv_send_wr, bind_mw.rkey);
FIELD_AS(abi_send_wr, bind_mr, ibv_send_wr, bind_mw.bind_info.mr);
FIELD_AS(abi_send_wr, bind_addr, ibv_send_wr, bind_mw.bind_info.addr);
FIELD_AS(abi_send_wr, bind_length, ibv_send_wr, bind_mw.bind_info.length);
FIELD_AS(abi_send_wr, bind_access, ibv_send_wr, bind_mw.bind_info.mw_access_flags);

SIZE(abi_recv_wr, ibv_recv_wr);
FIELD(recv_wr, wr_id);
FIELD(recv_wr, next);
FIELD(recv_wr, sg_list);
FIELD(recv_wr, num_sge);

SIZE(abi_wc, ibv_wc);
FIELD(wc, wr_id);
FIELD(wc, status);
FIELD(wc, opcode);
FIELD(wc, vendor_err);
FIELD(wc, byte_len);
FIELD(wc, imm_data);
FIELD(wc, qp_num);
FIELD(wc, wc_flags);

MADE_BY_THEM(abi_device, ibv_device);
FIELD(device, node_type);
FIELD(device, transport_type);
FIELD(device, name);
FIELD(device, dev_name);
FIELD(device, dev_path);
FIELD(device, ibdev_path);

SIZE(abi_ops, ibv_context_ops);
FIELD_AS(abi_ops, alloc_mw, ibv_context_ops, alloc_mw);
FIELD_AS(abi_ops, dealloc_mw, ibv_context_ops, dealloc_mw);
FIELD_AS(abi_ops, poll_cq, ibv_context_ops, poll_cq);
FIELD_AS(abi_ops, req_notify_cq, ibv_context_ops, req_notify_cq);
FIELD_AS(abi_ops, post_send, ibv_context_ops, post_send);
FIELD_AS(abi_ops, post_recv, ibv_context_ops, post_recv);
MADE_BY_THEM(abi_context, ibv_context);
FIELD(context, device);
FIELD(context, ops);
FIELD(context, async_fd);
FIELD(context, num_comp_vectors);

SIZE(abi_device_attr, ibv_device_attr);
FIELD(device_attr, fw_ver);
FIELD(device_attr, node_guid);
FIELD(device_attr, max_mr_size);
FIELD(device_attr, page_size_cap);
FIELD(device_attr, vendor_id);
FIELD(device_attr, vendor_part_id);
FIELD(device_attr, max_qp);
FIELD(device_attr, max_qp_wr);
FIELD(device_attr, device_cap_flags);
FIELD(device_attr, max_sge);
FIELD(device_attr, max_sge_rd);
FIELD(device_attr, max_cq);
FIELD(device_attr, max_cqe);
FIELD(device_attr, max_mr);
FIELD(device_attr, max_pd);
FIELD(device_attr, max_qp_rd_atom);
FIELD(device_attr, max_qp_init_rd_atom);
FIELD(device_attr, max_mw);
FIELD(device_attr, phys_port_cnt);

SIZE(abi_port_attr, ibv_port_attr);
FIELD(port_attr, state);
FIELD(port_attr, max_mtu);
FIELD(port_attr, active_mtu);
FIELD(port_attr, gid_tbl_len);
FIELD(port_attr, max_msg_sz);
FIELD(port_attr, lid);
FIELD(port_attr, active_width);
FIELD(port_attr, active_speed);
FIELD(port_attr, phys_state);
FIELD(port_attr, link_layer);

SIZE(abi_gid_entry, ibv_gid_entry);
FIELD(gid_entry, gid);
FIELD(gid_entry, gid_index);
FIELD(gid_entry, port_num);
FIELD(gid_entry, gid_type);
FIELD(gid_entry, ndev_ifindex);

SIZE(abi_async_event, ibv_async_event);
FIELD(async_event, element);
FIELD(async_event, event_type);

MADE_BY_THEM(abi_mr, ibv_mr);
FIELD(mr, addr);
FIELD(mr, length);
FIELD(mr, lkey);
FIELD(mr, rkey);
MADE_BY_THEM(abi_mw, ibv_mw);
FIELD(mw, rkey);

MADE_BY_THEM(abi_comp_channel, ibv_comp_channel);
FIELD(comp_channel, fd);
MADE_BY_THEM(abi_cq, ibv_cq);
FIELD(cq, context);
FIELD(cq, cqe);

SIZE(abi_qp_cap, ibv_qp_cap);
FIELD(qp_cap, max_send_wr);
FIELD(qp_cap, max_recv_wr);
FIELD(qp_cap, max_send_sge);
FIELD(qp_cap, max_recv_sge);
FIELD(qp_cap, max_inline_data);
SIZE(abi_qp_init_attr, ibv_qp_init_attr);
FIELD(qp_init_attr, send_cq);
FIELD(qp_init_attr, recv_cq);
FIELD(qp_init_attr, cap);
FIELD(qp_init_attr, qp_type);
FIELD(qp_init_attr, sq_sig_all);

SIZE(abi_global_route, ibv_global_route);
FIELD(global_route, dgid);
FIELD(global_route, flow_label);
FIELD(global_route, sgid_index);
FIELD(global_route, hop_limit);
FIELD(global_route, traffic_class);
SIZE(abi_ah_attr, ibv_ah_attr);
FIELD(ah_attr, grh);
FIELD(ah_attr, dlid);
FIELD(ah_attr, sl);
FIELD(ah_attr, is_global);
FIELD(ah_attr, port_num);
SIZE(abi_qp_attr, ibv_qp_attr);
FIELD(qp_attr, qp_state);
FIELD(qp_attr, path_mtu);
FIELD(qp_attr, rq_psn);
FIELD(qp_attr, sq_psn);
FIELD(qp_attr, dest_qp_num);
FIELD(qp_attr, qp_access_flags);
FIELD(qp_attr, cap);
FIELD(qp_attr, ah_attr);
FIELD(qp_attr, pkey_index);
FIELD(qp_attr, max_rd_atomic);
FIELD(qp_attr, max_dest_rd_atomic);
FIELD(qp_attr, min_rnr_timer);
FIELD(qp_attr, port_num);
FIELD(qp_attr, timeout);
FIELD(qp_attr, retry_cnt);
FIELD(qp_attr, rnr_retry);
MADE_BY_THEM(abi_qp, ibv_qp);
FIELD(qp, context);
FIELD(qp, qp_num);

MADE_BY_THEM(abi_event_channel, rdma_event_channel);
CM_FIELD(event_channel, fd);
MADE_BY_THEM(abi_cm_id, rdma_cm_id);
CM_FIELD(cm_id, verbs);
CM_FIELD(cm_id, qp);
FIELD_AS(abi_cm_id, src_storage, rdma_cm_id, route.addr.src_storage);
FIELD_AS(abi_cm_id, dst_storage, rdma_cm_id, route.addr.dst_storage);
FIELD_AS(abi_cm_id, sgid, rdma_cm_id, route.addr.addr.ibaddr.sgid);
FIELD_AS(abi_cm_id, dgid, rdma_cm_id, route.addr.addr.ibaddr.dgid);
CM_FIELD(cm_id, ps);
CM_FIELD(cm_id, port_num);
SIZE(abi_conn_param, rdma_conn_param);
CM_FIELD(conn_param, private_data);
CM_FIELD(conn_param, private_data_len);
CM_FIELD(conn_param, responder_resources);
CM_FIELD(conn_param, initiator_depth);
CM_FIELD(conn_param, flow_control);
CM_FIELD(conn_param, retry_count);
CM_FIELD(conn_param, rnr_retry_count);
CM_FIELD(conn_param, qp_num);
MADE_BY_THEM(abi_cm_event, rdma_cm_event);
CM_FIELD(cm_event, id);
CM_FIELD(cm_event, listen_id);
CM_FIELD(cm_event, event);
CM_FIELD(cm_event, status);
FIELD_AS(abi_cm_event, conn, rdma_cm_event, param.conn);
