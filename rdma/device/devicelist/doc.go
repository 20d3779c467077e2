// Package devicelist reads and applies lists of RDMA devices, in the form that NCCL has for NCCL_IB_HCA. It keeps no
// state.
package devicelist
