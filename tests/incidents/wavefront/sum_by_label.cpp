// A sum of gradients by label, reduced within the wave before it is added to memory: the reduction whose lane count was
// written down as 64. Freestanding: no HIP header, no device library. build.sh has the commands.
//
// Every thread holds a label and a value. For each label, the lanes of a wave that hold it find one another by a ballot;
// the first of them, the leader, adds up the values of all of them and does one atomic addition.
//
// LANES is 64 in the faulty build, as in code that was written on a machine whose waves have 64 lanes. Where a wave has
// 32, the second wave of every 64 threads counts its lanes from 32 to 63, but the ballot has the bits 0 to 31 only: none
// of its lanes finds itself in the mask, none leads, and what they hold is never added. Nothing else goes wrong.
// The fixed build asks the compiler, which knows the target.
#ifdef FIXED
#define LANES __builtin_amdgcn_wavefrontsize()
#else
#define LANES 64u
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
#define GLOBAL __attribute__((address_space(1)))

static inline u64 ballot(bool predicate) {
#ifdef __GFX9__
    return __builtin_amdgcn_ballot_w64(predicate);
#else
    return __builtin_amdgcn_ballot_w32(predicate);  // widened with zeros, as HIP's __ballot is
#endif
}

static inline float from_lane(u32 lane, float value) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((int)(lane * 4), __builtin_bit_cast(int, value)));
}

extern "C" __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(256, 256))) void sum_by_label(
    const GLOBAL int *label, const GLOBAL float *value, GLOBAL float *sums, int labels) {
    u32 thread = __builtin_amdgcn_workitem_id_x();
    u32 i = __builtin_amdgcn_workgroup_id_x() * 256 + thread;
    u32 lane = thread % LANES;
    int mine = label[i];
    float held = value[i];
    for (int l = 0; l < labels; l++) {
        u64 mask = ballot(mine == l);
        if (!(mask >> lane & 1)) continue;
        float sum = 0;
        for (u32 bit = 0; bit < LANES; bit++)
            if (mask >> bit & 1) sum += from_lane(bit, held);
        if (lane == (u32)__builtin_ctzll(mask))
            __scoped_atomic_fetch_add(sums + l, sum, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    }
}
