"""The published names: what programs that were written for the original packages call, with which parameters."""

import importlib
import inspect
import typing

import pytest

PUBLISHED = {
    "stepvan.tensor_bus.commands": {
        "BaseCommand": "(*, timestamp=None, semaphore_name=None)",
        "InitPair": "(*, timestamp=None, semaphore_name=None, pair_name, local_name, expected_world_size, remote_name, mesh_shape_payload=None, "
        "placements_payload=None)",
        "RegisterTensors": "(*, timestamp=None, semaphore_name=None, batch_id, tensors, bucket_size=None)",
        "Transfer": "(*, timestamp=None, semaphore_name=None, batch_id, transfer_type)",
        "QueryStatus": "(*, timestamp=None, semaphore_name=None, batch_id, state_name='status')",
        "CleanupBatch": "(*, timestamp=None, semaphore_name=None, batch_id)",
    },
    "stepvan.resharding.execution": {
        "_Writeback": "(kind, recv_buffer=None, dst_param=None, dst_slice=None, param_name=None, recv_bufs=None)",
        "_get_mxfp8_accumulator": "(pending, dst_param)",
    },
    "stepvan.resharding.copy_services.base": {
        "CopyService.submit_send": "(self, src_tensor, dest_rank, task_id=None)",
        "CopyService.submit_recv": "(self, dest_tensor, src_rank, task_id=None)",
        "CopyService.run": "(self)",
    },
    "stepvan.resharding.transforms": {
        "ReshardTransform.should_transform": "(self, param_name)",
        "ReshardTransform.prepare_send": "(self, param_name, src_slice, src_param)",
        "ReshardTransform.prepare_recv": "(self, param_name, dst_slice)",
        "ReshardTransform.finalize_recv": "(self, param_name, dst_slice, recv_buffers)",
        "MXFP8ReshardTransform": "(convertible_params, persistent_buffers, buffer_key_prefix='', convert_on_send=False, backend=None)",
    },
    "stepvan.replay_pipelines.transfer": {
        "build_replay_transfer_backend": "(*, device, ring_depth)",
        **{
            f"{family}ReplayTransferBackend{method}": parameters
            for family in ("CudaLike", "Xpu", "TorchCopy")
            for method, parameters in {
                "": "(*, device, ring_depth)",
                ".register_host_slots": "(self, slots)",
                ".allocate_device_slots": "(self, *, count, shape, dtype)",
                ".submit_h2d": "(self, *, slot, dst, src, metadata, trace_recorder, trace_cuda_events, h2d_bytes, pack_layout, pack_executor)",
                ".clear_ready": "(self, slot)",
                ".ready_query": "(self, slot)",
                ".synchronize_ready": "(self, slot)",
                ".wait_current_stream_for_ready": "(self, slot)",
                ".close": "(self)",
            }.items()
        },
    },
    "stepvan.particles.context_switch": {
        "ParticleCache": "(mk_module, args, cache_size, device, lock)",
        "ParticleCache.create": "(self, pid, mk_optim, mk_scheduler=None, prior=False, train_key=None)",
        "ParticleCache.try_read": "(self, pid, pin=False, msg=None)",
        "ParticleCache.try_pin": "(self, pid)",
        "ParticleCache.unpin": "(self, pid)",
        "ParticleCache.release": "(self, pid, thread)",
        "ParticleCache.contains": "(self, pid)",
        "ParticleCache.particles": "(self)",
        "ParticleCache.save_to_disk": "(self, pid, path='./particles')",
        "ParticleCacheLRU": "(mk_module, args, cache_size, device)",
        "ParticleCacheLRU.create": "(self, pid, mk_optim)",
        "ParticleCacheLRU.read": "(self, pid)",
        "ParticleCacheLRU.write": "(self, pid, module)",
        "ParticleCacheLRU.contains": "(self, pid)",
        "ParticleCacheLRU.particles": "(self)",
    },
    "stepvan.particles.node_event_loop": {
        "NodeEventLoop": "(mk_module, args, in_queue, out_queue, rank, devices, cache_size, view_size)",
        "NodeEventLoop.forward": "(self, pid, x, *args)",
        "NodeEventLoop.get": "(self, pid_curr, pid)",
        "NodeEventLoop.send": "(self, send_particle, pid_curr, pid, msg_name, *args)",
        "NodeEventLoop.step": "(self, pid, loss_fn, data, label, *args)",
        "NodeEventLoop.scheduler_step": "(self, pid, *args)",
        "NodeEventLoop.zero_grad": "(self, pid)",
        "NodeEventLoop.register_receive": "(self, pid, msg, fn, state)",
        "NodeEventLoop.particles": "(self)",
        "NodeEventLoop.wait": "(self, pfutures)",
    },
    "stepvan.particles.waitable": {"Waitable._wait": "(self, fid)"},
    "stepvan.particles.pfuture": {"PFuture.wait": "(self, timeout=None)", "PFuture.done": "(self)"},
    "stepvan.particles.particle": {
        "Particle.particle_ids": "(self)",
        "Particle.other_particles": "(self)",
        "Particle.send": "(self, pid, msg, *args)",
        "Particle.get": "(self, pid)",
        "ParticleView.view": "(self)",
    },
    "stepvan.particles.push": {
        "PusH": "(mk_module, *args, cache_size=4, view_size=4, multi=False)",
        "PusH.p_create": "(self, mk_optim, mk_scheduler=None, prior=False, train_key=None, device=0, receive={}, state={})",
        "PusH.p_launch": "(self, pid, msg, *args)",
        "PusH.p_wait": "(self, futures)",
        "PusH.p_parameters": "(self, pid)",
        "PusH.particle_ids": "(self)",
        "PusH.num_particles": "(self)",
        "PusH.save": "(self)",
    },
    "stepvan.particles.utils": {
        "detach_to_cpu": "(val)",
        "detach_to_device": "(device, val, requires_grad=False)",
        "to_device": "(device, val)",
    },
    "stepvan.particles.messages": {
        "MSG": "()",
        "NELBroadcastParticlesAckMSG": "()",
        "NELBroadcastParticlesMSG": "(in_queues, out_queues, particle_to_device)",
        "NELSaveModel": "(pid_fid)",
        "NELSaveModelAckPDMSG": "(pid_fid)",
        "NodeEvtLoopCleanupMSG": "()",
        "NodeEvtLoopInitMSG": "()",
        "ReceiveFuncAckMSG": "()",
        "ReceiveFuncAckPDMSG": "(pid_fid, result)",
        "ReceiveFuncMSG": "(pid_fid, pid, msg_name, args)",
        "ReceiveFuncPDMSG": "(pid_fid, pid_to, msg, args)",
        "ReceiveGetAckMSG": "(fid, pid, params, params_grad)",
        "ReceiveGetMSG": "(pid_fid, pid_caller, pid)",
        "ReceiveParametersAckPDMSG": "(pid_fid, params)",
        "ReceiveParametersPDMSG": "(pid_fid, pid)",
        "ReceiveParticleInitAckPDMSG": "()",
        "ReceiveParticleInitPDMSG": "(device, pid, mk_optim, mk_scheduler, prior, train_key, receive, state)",
        "ReceiveRegisterAckPDMSG": "()",
        "ReceiveRegisterPDMSG": "(pid, msg, fn, state)",
    },
}
"""Parameters and defaults, without types."""

BEGINNINGS = {
    "stepvan.resharding.execution": {"execute_reshard_plan": "(plan, src_module, dst_module, service, group=None, transform=None"},
    "stepvan.resharding.refit": {
        "swap_model_weights": "(src_model, target_model, refit_method, group=None, src_rank_offset=0, dst_rank_offset=0, transform=None, "
        "num_dst_pools=1, dst_pool_index=0",
        "reshard_state_dicts": "(node, src, dst",
    },
    "stepvan.tensor_bus.client": {
        "TensorBusClient.init_pair": "(self, pair_name, local_name, remote_name, expected_world_size, device_mesh=None, placements=None, "
        "blocking=True, timeout=30.0",
        "TensorBusClient.register_tensors": "(self, batch_id, tensors, bucket_size=None, timeout=30.0, role=None",
        "BatchHandler.transfer": "(self, transfer_type, blocking=False, timeout=30.0",
    },
    "stepvan.resharding.utils": {
        "ParameterMetadata": "(name, shape, dtype, element_size, is_tp=False, partition_dim=0, partition_stride=1, partition_sizes=None",
        "TransferOp": "(param_name, peer_rank, is_send, my_slice, peer_slice, task_id=None, batch_id=0",
        "ShardingDescriptor": "(name, dim, src_stride, dst_stride, src_dim_ranks, dst_dim_ranks",
        "ReshardPlan": "(send_ops, recv_ops, transform=None, buffer_dtypes=None, num_batches=1",
    },
}
"""Those that have further parameters of stepvan, each with a default."""


def signature(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    had = inspect.signature(found)
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in had.parameters.values()]
    return had.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


@pytest.mark.parametrize("module, name, want", [(m, n, s) for m, names in PUBLISHED.items() for n, s in names.items()])
def test_signatures_are_the_published_ones(module, name, want):
    assert str(signature(module, name)) == want


@pytest.mark.parametrize("module, name, want", [(m, n, s) for m, names in BEGINNINGS.items() for n, s in names.items()])
def test_further_parameters_have_defaults(module, name, want):
    had = signature(module, name)
    assert str(had).startswith(want), str(had)
    more = list(had.parameters.values())[want.count(",") + 1 :]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert all(p.default is not p.empty or p.kind in kinds for p in more), str(had)


def test_the_tables_have_all_messages_and_classes():
    for module in ("messages", "utils", "context_switch", "waitable"):
        names = importlib.import_module(f"stepvan.particles.{module}").__all__
        told = {name.partition(".")[0] for name in PUBLISHED[f"stepvan.particles.{module}"]}
        assert told == set(names)
    commands = importlib.import_module("stepvan.tensor_bus.commands")
    assert {c.__name__ for c in typing.get_args(commands.Message)} | {"BaseCommand"} == set(PUBLISHED["stepvan.tensor_bus.commands"])
