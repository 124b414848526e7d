/* Instructions for which CUDA C++ has no function. This is the only file with inline PTX. For tests
 * without a GPU, the end of this file defines the same functions a second time. These definitions
 * call tests/cuda/emulator. tests/cuda/programs/instructions.cu tests each function. */
#pragma once
#include "src/kernels/cuda/device.cuh"

#define DEV __device__ __forceinline__

template <typename T> inline constexpr bool is_bf16 = false;
template <> inline constexpr bool is_bf16<__nv_bfloat16> = true;

DEV uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* Return a matrix descriptor of wgmma with the 128-byte swizzle. lbo is the leading byte offset,
 * and sbo is the stride byte offset. */
DEV uint64_t wg_desc(uint32_t addr, uint32_t lbo, uint32_t sbo)
{
    return (uint64_t)((addr & 0x3FFFF) >> 4) | (uint64_t)(lbo >> 4) << 16 |
           (uint64_t)(sbo >> 4) << 32 | (uint64_t)1 << 62;
}

#ifndef CUDA_EMULATED
/* Start to copy 16 bytes to shared memory, or to write 16 zero bytes if `ok` is false. */
DEV void cp16(uint32_t dst, const void *src, bool ok)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(ok ? 16 : 0));
}
DEV void cp4(uint32_t dst, const void *src, bool ok)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src),
                 "r"(ok ? 4 : 0));
}
DEV void cp8(uint32_t dst, const void *src, bool ok)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src),
                 "r"(ok ? 8 : 0));
}
DEV void cp_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> DEV void cp_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
DEV void ldsm4(uint32_t (&r)[4], uint32_t a)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(a));
}
DEV void ldsm4t(uint32_t (&r)[4], uint32_t a)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(a));
}
DEV void mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Multiply as mma16816() does, but with elements of float16. */
DEV void mma16816_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV uint32_t pack(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
DEV uint32_t pack_f16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
DEV void wg_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEV void wg_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> DEV void wg_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Compute c[N/8][4] = a b or, if `add` is not 0, c += a b. If TB is 1, b is stored as [k][n]
 * ("MN-major"). */
template <int TB> DEV void wgmma_n32(float (&c)[4][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                 "{%16,%17,%18,%19}, %20, p, 1, 1, %22;}\n"
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]),
                   "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]),
                   "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]),
                   "+f"(c[3][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
}
#define C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
template <int TB> DEV void wgmma_n64(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, %38;}\n"
                 : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
}
/* Multiply by wgmma with both operands in shared memory. In the functions above, only B is in
 * shared memory. */
DEV void wgmma_n64_ss(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "%32, %33, p, 1, 1, 0, 0;}\n"
                 : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7)
                 : "l"(a), "l"(b), "r"(add));
}
DEV void wgmma_n32_ss(float (&c)[4][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                 "%16, %17, p, 1, 1, 0, 0;}\n"
                 : C4(0), C4(1), C4(2), C4(3)
                 : "l"(a), "l"(b), "r"(add));
}
template <int TB>
DEV void wgmma_n128(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%"
        "38,%39,%40,%41,%42,%43,"
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, p, 1, 1, %70;}\n"
        : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7), C4(8), C4(9), C4(10), C4(11),
          C4(12), C4(13), C4(14), C4(15)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
}
DEV void wgmma_n128_ss(float (&c)[16][4], uint64_t a, uint64_t b, int add)
{
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%"
        "38,%39,%40,%41,%42,%43,"
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "%64, %65, p, 1, 1, 0, 0;}\n"
        : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7), C4(8), C4(9), C4(10), C4(11),
          C4(12), C4(13), C4(14), C4(15)
        : "l"(a), "l"(b), "r"(add));
}
/* Multiply by wgmma with elements of float16. */
template <int TB>
DEV void wgmma_n64_f16(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, %38;}\n"
                 : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
}
DEV void wgmma_n64_ss_f16(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
                 "%32, %33, p, 1, 1, 0, 0;}\n"
                 : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7)
                 : "l"(a), "l"(b), "r"(add));
}
template <int TB>
DEV void wgmma_n128_f16(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%"
        "38,%39,%40,%41,%42,%43,"
        "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, p, 1, 1, %70;}\n"
        : C4(0), C4(1), C4(2), C4(3), C4(4), C4(5), C4(6), C4(7), C4(8), C4(9), C4(10), C4(11),
          C4(12), C4(13), C4(14), C4(15)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));
}
#undef C4
/* Make the data that this thread has written to shared memory, by stores and by cp.async, visible
 * to wgmma. Every thread that has written calls this before the barrier. */
DEV void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEV void st_shared(uint32_t a, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(a), "r"(x) : "memory");
}
/* Store 16 bytes by a single instruction. (If x were assigned to *p, the compiler could split the
 * assignment into several stores.) */
DEV void st_global16(void *p, uint4 x)
{
    __stwb((uint4 *)p, x);
}
DEV uint4 ld_shared16(uint32_t a)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(a)
                 : "memory");
    return x;
}
/* Prevent the compiler from moving uses of x across this call, and from assuming anything about the
 * value of x after the call. */
DEV void pin(uint32_t &x)
{
    asm volatile("" : "+r"(x)::"memory");
}
DEV void pin(float &x)
{
    asm volatile("" : "+f"(x)::"memory");
}
template <int TB> DEV void wgmma(float (&c)[4][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    wgmma_n32<TB>(c, a, b, add);
}
template <int TB> DEV void wgmma(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    wgmma_n64<TB>(c, a, b, add);
}
template <int TB> DEV void wgmma(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    wgmma_n128<TB>(c, a, b, add);
}
DEV void wgmma_ss(float (&c)[4][4], uint64_t a, uint64_t b, int add)
{
    wgmma_n32_ss(c, a, b, add);
}
DEV void wgmma_ss(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    wgmma_n64_ss(c, a, b, add);
}
DEV void wgmma_ss(float (&c)[16][4], uint64_t a, uint64_t b, int add)
{
    wgmma_n128_ss(c, a, b, add);
}
/* Instructions for elements of type T, which is __nv_bfloat16 or __half. @{ */
template <typename T>
DEV void mma_of(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (is_bf16<T>)
        mma16816(c, a, b0, b1);
    else
        mma16816_f16(c, a, b0, b1);
}
template <typename T> DEV uint32_t pack_of(float lo, float hi)
{
    return is_bf16<T> ? pack(lo, hi) : pack_f16(lo, hi);
}
template <typename T, int TB>
DEV void wgmma_of(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    if constexpr (is_bf16<T>)
        wgmma_n64<TB>(c, a, b, add);
    else
        wgmma_n64_f16<TB>(c, a, b, add);
}
template <typename T, int TB>
DEV void wgmma_of(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    if constexpr (is_bf16<T>)
        wgmma_n128<TB>(c, a, b, add);
    else
        wgmma_n128_f16<TB>(c, a, b, add);
}
template <typename T> DEV void wgmma_ss_of(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    if constexpr (is_bf16<T>)
        wgmma_n64_ss(c, a, b, add);
    else
        wgmma_n64_ss_f16(c, a, b, add);
}
/* @} */

#else /* --- emulation --- */

DEV void cp16(uint32_t dst, const void *src, bool ok)
{
    emu_cp_async(dst, src, 16, ok ? 16 : 0);
}
DEV void cp8(uint32_t dst, const void *src, bool ok)
{
    emu_cp_async(dst, src, 8, ok ? 8 : 0);
}
DEV void cp4(uint32_t dst, const void *src, bool ok)
{
    emu_cp_async(dst, src, 4, ok ? 4 : 0);
}
DEV void cp_commit(void)
{
    emu_cp_async_commit();
}
template <int N> DEV void cp_wait(void)
{
    emu_cp_async_wait(N);
}
DEV void ldsm4(uint32_t (&r)[4], uint32_t a)
{
    emu_ldmatrix(r, a, false);
}
DEV void ldsm4t(uint32_t (&r)[4], uint32_t a)
{
    emu_ldmatrix(r, a, true);
}
DEV void mma16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emu_mma(c, a, b0, b1);
}
DEV float ex2(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y; /* as instructions with the suffix .ftz do */
}
DEV uint32_t pack(float lo, float hi)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    uint32_t u;
    memcpy(&u, &h, 4);
    return u;
}
DEV void wg_fence(void)
{
    emu_wgmma_fence();
}
DEV void wg_commit(void)
{
    emu_wgmma_commit();
}
template <int N> DEV void wg_wait(void)
{
    emu_wgmma_wait(N);
}
template <int TB, int N>
DEV void wgmma(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    emu_wgmma(&c[0][0], 8 * N, a, 0, b, add, TB);
}
template <int N> DEV void wgmma_ss(float (&c)[N][4], uint64_t a, uint64_t b, int add)
{
    emu_wgmma(&c[0][0], 8 * N, NULL, a, b, add, 0);
}
template <typename T>
DEV void mma_of(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emu_mma(c, a, b0, b1, !is_bf16<T>);
}
template <typename T> DEV uint32_t pack_of(float lo, float hi)
{
    if (is_bf16<T>)
        return pack(lo, hi);
    __half2 h = __floats2half2_rn(lo, hi);
    uint32_t u;
    memcpy(&u, &h, 4);
    return u;
}
template <typename T, int TB, int N>
DEV void wgmma_of(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b, int add)
{
    emu_wgmma(&c[0][0], 8 * N, a, 0, b, add, TB, !is_bf16<T>);
}
template <typename T, int N> DEV void wgmma_ss_of(float (&c)[N][4], uint64_t a, uint64_t b, int add)
{
    emu_wgmma(&c[0][0], 8 * N, NULL, a, b, add, 0, !is_bf16<T>);
}
DEV void fence_proxy_async(void)
{
    emu_fence_proxy_async();
}
DEV void st_shared(uint32_t a, uint32_t x)
{
    *(uint32_t *)emu_smem_pointer(a) = x;
}
DEV void st_global16(void *p, uint4 x)
{
    *(uint4 *)p = x;
}
DEV uint4 ld_shared16(uint32_t a)
{
    return *(uint4 *)emu_smem_pointer(a);
}
DEV void pin(uint32_t &) {}
DEV void pin(float &) {}
#endif
