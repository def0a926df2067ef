	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.amdhsa_code_object_version 6
	.text
	.protected	sum_by_label            ; -- Begin function sum_by_label
	.globl	sum_by_label
	.p2align	8
	.type	sum_by_label,@function
sum_by_label:                           ; @sum_by_label
; %bb.0:
	s_load_dword s10, s[0:1], 0x18
	s_waitcnt lgkmcnt(0)
	s_cmp_lt_i32 s10, 1
	s_cbranch_scc1 .LBB0_27
; %bb.1:
	s_load_dwordx4 s[12:15], s[0:1], 0x0
	s_load_dwordx2 s[4:5], s[0:1], 0x10
	v_lshl_or_b32 v2, s2, 8, v0
	v_mov_b32_e32 v3, 0
	v_lshlrev_b64 v[4:5], 2, v[2:3]
	s_waitcnt lgkmcnt(0)
	v_lshl_add_u64 v[6:7], s[12:13], 0, v[4:5]
	v_lshl_add_u64 v[4:5], s[14:15], 0, v[4:5]
	global_load_dword v2, v[6:7], off
	s_mov_b32 s3, 0
	global_load_dword v4, v[4:5], off
	v_and_b32_e32 v5, 63, v0
	v_lshlrev_b64 v[0:1], v0, 1
	s_mov_b32 s6, s3
	s_waitcnt vmcnt(0)
	s_branch .LBB0_3
.LBB0_2:                                ;   in Loop: Header=BB0_3 Depth=1
	s_or_b64 exec, exec, s[8:9]
	s_add_i32 s6, s6, 1
	s_cmp_eq_u32 s6, s10
	s_cbranch_scc1 .LBB0_27
.LBB0_3:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_6 Depth 2
                                        ;     Child Loop BB0_24 Depth 2
	v_cmp_eq_u32_e32 vcc, s6, v2
	s_nop 1
	v_and_b32_e32 v7, vcc_hi, v1
	v_and_b32_e32 v6, vcc_lo, v0
	v_cmp_ne_u64_e64 s[0:1], 0, v[6:7]
	s_and_saveexec_b64 s[8:9], s[0:1]
	s_cbranch_execz .LBB0_2
; %bb.4:                                ;   in Loop: Header=BB0_3 Depth=1
	s_mov_b64 s[0:1], 7
	s_mov_b32 s7, 28
	v_mov_b32_e32 v6, 0
	s_branch .LBB0_6
.LBB0_5:                                ;   in Loop: Header=BB0_6 Depth=2
	s_add_u32 s0, s0, 8
	s_addc_u32 s1, s1, 0
	s_add_i32 s7, s7, 32
	s_cmpk_eq_i32 s0, 0x47
	s_cbranch_scc1 .LBB0_22
.LBB0_6:                                ;   Parent Loop BB0_3 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	s_add_i32 s2, s0, -7
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_8
; %bb.7:                                ;   in Loop: Header=BB0_6 Depth=2
	s_sub_i32 s2, s7, 28
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_8:                                ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -6
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_10
; %bb.9:                                ;   in Loop: Header=BB0_6 Depth=2
	s_sub_i32 s2, s7, 24
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_10:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -5
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_12
; %bb.11:                               ;   in Loop: Header=BB0_6 Depth=2
	s_sub_i32 s2, s7, 20
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_12:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -4
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_14
; %bb.13:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s7, -16
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_14:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -3
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_16
; %bb.15:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s7, -12
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_16:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -2
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_18
; %bb.17:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s7, -8
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_18:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s0, -1
	s_lshr_b64 s[12:13], vcc, s2
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_20
; %bb.19:                               ;   in Loop: Header=BB0_6 Depth=2
	s_add_i32 s2, s7, -4
	v_mov_b32_e32 v7, s2
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
.LBB0_20:                               ;   in Loop: Header=BB0_6 Depth=2
	s_lshr_b64 s[12:13], vcc, s0
	s_and_b32 s2, s12, 1
	s_cmp_eq_u64 s[2:3], 0
	s_cbranch_scc1 .LBB0_5
; %bb.21:                               ;   in Loop: Header=BB0_6 Depth=2
	v_mov_b32_e32 v7, s7
	ds_bpermute_b32 v7, v7, v4
	s_waitcnt lgkmcnt(0)
	v_add_f32_e32 v6, v6, v7
	s_branch .LBB0_5
.LBB0_22:                               ;   in Loop: Header=BB0_3 Depth=1
	s_ff1_i32_b64 s0, vcc
	v_cmp_eq_u32_e32 vcc, s0, v5
	s_and_b64 exec, exec, vcc
	s_cbranch_execz .LBB0_2
; %bb.23:                               ;   in Loop: Header=BB0_3 Depth=1
	s_mov_b64 s[0:1], exec
	v_bfrev_b32_e32 v7, 1
.LBB0_24:                               ;   Parent Loop BB0_3 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	s_ff1_i32_b64 s2, s[0:1]
	v_readlane_b32 s7, v6, s2
	s_lshl_b64 s[12:13], 1, s2
	s_andn2_b64 s[0:1], s[0:1], s[12:13]
	v_add_f32_e32 v7, s7, v7
	s_cbranch_scc1 .LBB0_24
; %bb.25:                               ;   in Loop: Header=BB0_3 Depth=1
	v_mbcnt_lo_u32_b32 v6, exec_lo, 0
	v_mbcnt_hi_u32_b32 v6, exec_hi, v6
	v_cmp_eq_u32_e32 vcc, 0, v6
	s_and_saveexec_b64 s[0:1], vcc
	s_xor_b64 s[0:1], exec, s[0:1]
	s_cbranch_execz .LBB0_2
; %bb.26:                               ;   in Loop: Header=BB0_3 Depth=1
	s_mov_b32 s7, s3
	s_lshl_b64 s[0:1], s[6:7], 2
	s_add_u32 s0, s4, s0
	s_addc_u32 s1, s5, s1
	global_atomic_add_f32 v3, v7, s[0:1]
	s_branch .LBB0_2
.LBB0_27:
	s_endpgm
	.section	.rodata,"a",@progbits
	.p2align	6, 0x0
	.amdhsa_kernel sum_by_label
		.amdhsa_group_segment_fixed_size 0
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 28
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_dispatch_ptr 0
		.amdhsa_user_sgpr_queue_ptr 0
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_dispatch_id 0
		.amdhsa_user_sgpr_kernarg_preload_length 0
		.amdhsa_user_sgpr_kernarg_preload_offset 0
		.amdhsa_user_sgpr_private_segment_size 0
		.amdhsa_uses_dynamic_stack 0
		.amdhsa_enable_private_segment 0
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_system_sgpr_workgroup_id_y 0
		.amdhsa_system_sgpr_workgroup_id_z 0
		.amdhsa_system_sgpr_workgroup_info 0
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 8
		.amdhsa_next_free_sgpr 16
		.amdhsa_accum_offset 8
		.amdhsa_reserve_vcc 1
		.amdhsa_float_round_mode_32 0
		.amdhsa_float_round_mode_16_64 0
		.amdhsa_float_denorm_mode_32 3
		.amdhsa_float_denorm_mode_16_64 3
		.amdhsa_dx10_clamp 1
		.amdhsa_ieee_mode 1
		.amdhsa_fp16_overflow 0
		.amdhsa_tg_split 0
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
; codeLenInByte = 668
; TotalNumSgprs: 22
; NumVgprs: 8
; NumAgprs: 0
; TotalNumVgprs: 8
; ScratchSize: 0
; MemoryBound: 0
; FloatMode: 240
; IeeeMode: 1
; LDSByteSize: 0 bytes/workgroup (compile time only)
; SGPRBlocks: 2
; VGPRBlocks: 0
; NumSGPRsForWavesPerEU: 22
; NumVGPRsForWavesPerEU: 8
; AccumOffset: 8
; Occupancy: 8
; WaveLimiterHint : 0
; COMPUTE_PGM_RSRC2:SCRATCH_EN: 0
; COMPUTE_PGM_RSRC2:USER_SGPR: 2
; COMPUTE_PGM_RSRC2:TRAP_HANDLER: 0
; COMPUTE_PGM_RSRC2:TGID_X_EN: 1
; COMPUTE_PGM_RSRC2:TGID_Y_EN: 0
; COMPUTE_PGM_RSRC2:TGID_Z_EN: 0
; COMPUTE_PGM_RSRC2:TIDIG_COMP_CNT: 0
; COMPUTE_PGM_RSRC3_GFX90A:ACCUM_OFFSET: 1
; COMPUTE_PGM_RSRC3_GFX90A:TG_SPLIT: 0
	.text
	.p2alignl 6, 3212836864
	.fill 256, 4, 3212836864
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
  - .agpr_count:     0
    .args:
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
    .sgpr_count:     22
    .sgpr_spill_count: 0
    .symbol:         sum_by_label.kd
    .uses_dynamic_stack: false
    .vgpr_count:     8
    .vgpr_spill_count: 0
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
amdhsa.version:
  - 1
  - 2
...

	.end_amdgpu_metadata
