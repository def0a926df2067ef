	.amdgcn_target "amdgcn-amd-amdhsa--gfx1030"
	.amdhsa_code_object_version 6
	.text
	.protected	sum_by_label            ; -- Begin function sum_by_label
	.globl	sum_by_label
	.p2align	8
	.type	sum_by_label,@function
sum_by_label:                           ; @sum_by_label
; %bb.0:
	s_load_dword s8, s[4:5], 0x18
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s8, 1
	s_cbranch_scc1 .LBB0_72
; %bb.1:
	s_clause 0x1
	s_load_dwordx4 s[12:15], s[4:5], 0x0
	s_load_dwordx2 s[0:1], s[4:5], 0x10
	v_lshl_or_b32 v1, s6, 8, v0
	v_mov_b32_e32 v2, 0
	v_and_b32_e32 v7, 31, v0
	s_mov_b32 s3, 0
	s_mov_b32 s4, s3
	v_lshlrev_b64 v[3:4], 2, v[1:2]
	v_lshlrev_b64 v[0:1], v7, 1
	s_waitcnt lgkmcnt(0)
	v_add_co_u32 v5, vcc_lo, s12, v3
	v_add_co_ci_u32_e64 v6, null, s13, v4, vcc_lo
	v_add_co_u32 v3, vcc_lo, s14, v3
	v_add_co_ci_u32_e64 v4, null, s15, v4, vcc_lo
	global_load_dword v5, v[5:6], off
	global_load_dword v6, v[3:4], off
	s_branch .LBB0_3
.LBB0_2:                                ;   in Loop: Header=BB0_3 Depth=1
	s_or_b32 exec_lo, exec_lo, s9
	s_add_i32 s4, s4, 1
	s_cmp_eq_u32 s4, s8
	s_cbranch_scc1 .LBB0_72
.LBB0_3:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_71 Depth 2
	s_waitcnt vmcnt(1)
	v_cmp_eq_u32_e64 s2, s4, v5
	s_mov_b32 s9, exec_lo
	v_and_b32_e32 v1, s2, v0
	v_cmpx_ne_u64_e32 0, v[1:2]
	s_cbranch_execz .LBB0_2
; %bb.4:                                ;   in Loop: Header=BB0_3 Depth=1
	v_mov_b32_e32 v1, 0
	s_and_b32 s6, s2, 1
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_6
; %bb.5:                                ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 0
	v_add_f32_e64 v1, s5, 0
.LBB0_6:                                ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 2
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_8
; %bb.7:                                ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 1
	v_add_f32_e32 v1, s5, v1
.LBB0_8:                                ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 4
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_10
; %bb.9:                                ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 2
	v_add_f32_e32 v1, s5, v1
.LBB0_10:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 8
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_12
; %bb.11:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 3
	v_add_f32_e32 v1, s5, v1
.LBB0_12:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 16
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_14
; %bb.13:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 4
	v_add_f32_e32 v1, s5, v1
.LBB0_14:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 32
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_16
; %bb.15:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 5
	v_add_f32_e32 v1, s5, v1
.LBB0_16:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 64
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_18
; %bb.17:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 6
	v_add_f32_e32 v1, s5, v1
.LBB0_18:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x80
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_20
; %bb.19:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 7
	v_add_f32_e32 v1, s5, v1
.LBB0_20:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x100
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_22
; %bb.21:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 8
	v_add_f32_e32 v1, s5, v1
.LBB0_22:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x200
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_24
; %bb.23:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 9
	v_add_f32_e32 v1, s5, v1
.LBB0_24:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x400
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_26
; %bb.25:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 10
	v_add_f32_e32 v1, s5, v1
.LBB0_26:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x800
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_28
; %bb.27:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 11
	v_add_f32_e32 v1, s5, v1
.LBB0_28:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x1000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_30
; %bb.29:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 12
	v_add_f32_e32 v1, s5, v1
.LBB0_30:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x2000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_32
; %bb.31:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 13
	v_add_f32_e32 v1, s5, v1
.LBB0_32:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x4000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_34
; %bb.33:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 14
	v_add_f32_e32 v1, s5, v1
.LBB0_34:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x8000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_36
; %bb.35:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 15
	v_add_f32_e32 v1, s5, v1
.LBB0_36:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x10000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_38
; %bb.37:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 16
	v_add_f32_e32 v1, s5, v1
.LBB0_38:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x20000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_40
; %bb.39:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 17
	v_add_f32_e32 v1, s5, v1
.LBB0_40:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x40000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_42
; %bb.41:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 18
	v_add_f32_e32 v1, s5, v1
.LBB0_42:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x80000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_44
; %bb.43:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 19
	v_add_f32_e32 v1, s5, v1
.LBB0_44:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x100000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_46
; %bb.45:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 20
	v_add_f32_e32 v1, s5, v1
.LBB0_46:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x200000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_48
; %bb.47:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 21
	v_add_f32_e32 v1, s5, v1
.LBB0_48:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x400000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_50
; %bb.49:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 22
	v_add_f32_e32 v1, s5, v1
.LBB0_50:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x800000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_52
; %bb.51:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 23
	v_add_f32_e32 v1, s5, v1
.LBB0_52:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x1000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_54
; %bb.53:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 24
	v_add_f32_e32 v1, s5, v1
.LBB0_54:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x2000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_56
; %bb.55:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 25
	v_add_f32_e32 v1, s5, v1
.LBB0_56:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x4000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_58
; %bb.57:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 26
	v_add_f32_e32 v1, s5, v1
.LBB0_58:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x8000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_60
; %bb.59:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 27
	v_add_f32_e32 v1, s5, v1
.LBB0_60:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x10000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_62
; %bb.61:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 28
	v_add_f32_e32 v1, s5, v1
.LBB0_62:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 0x20000000
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_64
; %bb.63:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 29
	v_add_f32_e32 v1, s5, v1
.LBB0_64:                               ;   in Loop: Header=BB0_3 Depth=1
	s_and_b32 s6, s2, 2.0
	s_mov_b32 s7, s3
	s_cmp_eq_u64 s[6:7], 0
	s_cbranch_scc1 .LBB0_66
; %bb.65:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 30
	v_add_f32_e32 v1, s5, v1
.LBB0_66:                               ;   in Loop: Header=BB0_3 Depth=1
	s_cmp_gt_i32 s2, -1
	s_cbranch_scc1 .LBB0_68
; %bb.67:                               ;   in Loop: Header=BB0_3 Depth=1
	s_waitcnt vmcnt(0)
	v_readlane_b32 s5, v6, 31
	v_add_f32_e32 v1, s5, v1
.LBB0_68:                               ;   in Loop: Header=BB0_3 Depth=1
	s_ff1_i32_b64 s2, s[2:3]
	v_cmp_eq_u32_e32 vcc_lo, s2, v7
	s_and_b32 exec_lo, exec_lo, vcc_lo
	s_cbranch_execz .LBB0_2
; %bb.69:                               ;   in Loop: Header=BB0_3 Depth=1
	s_mov_b32 s2, exec_lo
	v_mbcnt_lo_u32_b32 v3, s2, 0
	v_cmp_eq_u32_e32 vcc_lo, 0, v3
	s_and_b32 s5, exec_lo, vcc_lo
	s_mov_b32 exec_lo, s5
	s_cbranch_execz .LBB0_2
; %bb.70:                               ;   in Loop: Header=BB0_3 Depth=1
	s_mov_b32 s5, s3
	s_lshl_b64 s[6:7], s[4:5], 2
	s_add_u32 s6, s0, s6
	s_addc_u32 s7, s1, s7
	s_bcnt1_i32_b32 s2, s2
	global_load_dword v4, v2, s[6:7]
	v_cvt_f32_ubyte0_e32 v3, s2
	s_mov_b32 s2, 0
	v_mul_f32_e32 v1, v1, v3
.LBB0_71:                               ;   Parent Loop BB0_3 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	s_waitcnt vmcnt(0)
	v_add_f32_e32 v3, v4, v1
	global_atomic_cmpswap v3, v2, v[3:4], s[6:7] glc
	s_waitcnt vmcnt(0)
	v_cmp_eq_u32_e32 vcc_lo, v3, v4
	v_mov_b32_e32 v4, v3
	s_or_b32 s2, vcc_lo, s2
	s_andn2_b32 exec_lo, exec_lo, s2
	s_cbranch_execnz .LBB0_71
	s_branch .LBB0_2
.LBB0_72:
	s_endpgm
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel sum_by_label
		.amdhsa_group_segment_fixed_size 0
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 28
		.amdhsa_user_sgpr_count 6
		.amdhsa_user_sgpr_private_segment_buffer 1
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_flat_scratch_init 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_wavefront_size32 1
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_system_sgpr_private_segment_wavefront_offset 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 8
		.amdhsa_next_free_sgpr 16
		.amdhsa_reserve_vcc 1
		.amdhsa_reserve_flat_scratch 0
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
		.amdhsa_fp16_overflow 0
		.amdhsa_workgroup_processor_mode 1
		.amdhsa_memory_ordered 1
		.amdhsa_forward_progress 1
		.amdhsa_shared_vgpr_count 0
		.amdhsa_exception_fp_ieee_invalid_op 0
		.amdhsa_exception_fp_denorm_src 0
		.amdhsa_exception_fp_ieee_div_zero 0
		.amdhsa_exception_fp_ieee_overflow 0
		.amdhsa_exception_fp_ieee_underflow 0
		.amdhsa_exception_fp_ieee_inexact 0
		.amdhsa_exception_int_div_zero 0
	.end_amdhsa_kernel
	.text
.Lfunc_end0:
	.size	sum_by_label, .Lfunc_end0-sum_by_label
                                        ; -- End function
	.set sum_by_label.num_vgpr, 8
	.set sum_by_label.num_agpr, 0
	.set sum_by_label.numbered_sgpr, 16
	.set sum_by_label.num_named_barrier, 0
	.set sum_by_label.private_seg_size, 0
	.set sum_by_label.uses_vcc, 1
	.set sum_by_label.uses_flat_scratch, 0
	.set sum_by_label.has_dyn_sized_stack, 0
	.set sum_by_label.has_recursion, 0
	.set sum_by_label.has_indirect_call, 0
	.section	.AMDGPU.csdata,"",@progbits
; Kernel info:
; codeLenInByte = 1428
; TotalNumSgprs: 18
; NumVgprs: 8
; ScratchSize: 0
; MemoryBound: 0
; FloatMode: 240
; IeeeMode: 1
; LDSByteSize: 0 bytes/workgroup (compile time only)
; SGPRBlocks: 0
; VGPRBlocks: 0
; NumSGPRsForWavesPerEU: 18
; NumVGPRsForWavesPerEU: 8
; Occupancy: 16
; WaveLimiterHint : 0
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 0
; COMPUTE_PGM_RSRC2:USER_SGPR: 6
; COMPUTE_PGM_RSRC2:TRAP_HANDLER: 0
; COMPUTE_PGM_RSRC2:TGID_X_EN: 1
; COMPUTE_PGM_RSRC2:TGID_Y_EN: 0
; COMPUTE_PGM_RSRC2:TGID_Z_EN: 0
; COMPUTE_PGM_RSRC2:TIDIG_COMP_CNT: 0
	.text
	.p2alignl 6, 3214868480
	.fill 48, 4, 3214868480
	.section	.AMDGPU.gpr_maximums,"",@progbits
	.set amdgpu.max_num_vgpr, 0
	.set amdgpu.max_num_agpr, 0
	.set amdgpu.max_num_sgpr, 0
	.set amdgpu.max_num_named_barrier, 0
	.text
	.ident	"clang version 22.1.8"
	.section	".note.GNU-stack","",@progbits
	.addrsig
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .address_space:  global
        .offset:         8
        .size:           8
        .value_kind:     global_buffer
      - .address_space:  global
        .offset:         16
        .size:           8
        .value_kind:     global_buffer
      - .offset:         24
        .size:           4
        .value_kind:     by_value
    .group_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .kernarg_segment_size: 28
    .max_flat_workgroup_size: 256
    .name:           sum_by_label
    .private_segment_fixed_size: 0
    .sgpr_count:     18
    .sgpr_spill_count: 0
    .symbol:         sum_by_label.kd
    .uses_dynamic_stack: false
    .vgpr_count:     8
    .vgpr_spill_count: 0
    .wavefront_size: 32
    .workgroup_processor_mode: 1
amdhsa.target:   amdgcn-amd-amdhsa--gfx1030
amdhsa.version:
  - 1
  - 2
...

	.end_amdgpu_metadata
