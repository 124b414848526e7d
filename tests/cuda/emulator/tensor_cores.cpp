/* Matrix instructions: ldmatrix, mma.sync and wgmma. Products are computed in f32, with k in order.
 *
 * Note [Where layouts come from]. mma.sync, ldmatrix and the fragments of wgmma are those of the
 * figures in the PTX ISA ("Matrix fragments for mma.m16n8k16", "ldmatrix", "Register fragments for
 * wgmma": accumulator m64nNk16 and A). The descriptors of wgmma, with 128-byte swizzle, K-major and
 * MN-major, are those of the PTX ISA's "Matrix descriptor"; kernels that use them gave right
 * results on an H100. Other descriptors are reported as unknown. */
#include <math.h>

#include "block.h"

namespace emu
{
static inline float bf16_bits_to_float(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Exact for all values: the multiplication moves the exponent and normalizes denormals. */
static inline float f16_bits_to_float(uint32_t bits)
{
    const uint32_t sign = (bits & 0x8000) << 16, rest = (bits & 0x7fff) << 13;
    if ((bits & 0x7c00) == 0x7c00)
        return __uint_as_float(sign | 0x7f800000 | rest);
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * 0x1p112f));
}

static inline float element(uint32_t bits, bool is_f16)
{
    return is_f16 ? f16_bits_to_float(bits) : bf16_bits_to_float(bits);
}

/* Take the fragment of A, 16 x 16, from the registers of the lanes. */
NO_ASAN static void gather_a(float (&a)[16][16], const uint32_t *const (&registers)[32],
                             bool is_f16)
{
    for (int l = 0; l < 32; l++) {
        const uint32_t *r = registers[l];
        const int row = l / 4, column = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            float *p = &a[row + (i & 1) * 8][column + (i >> 1) * 8];
            p[0] = element(r[i] & 0xffff, is_f16);
            p[1] = element(r[i] >> 16, is_f16);
        }
    }
}

template <int N>
NO_ASAN static void multiply(float (*c)[N], const float (&a)[16][16], const float (*b)[N], int n)
{
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < n; j++)
                c[i][j] += a[i][k] * b[k][j];
}

/* --- mma.sync --- */

struct mma_io {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
    bool is_f16;
};

NO_ASAN static void combine_mma(warp *w, unsigned)
{
    float a[16][16], b[16][8], c[16][8];
    const uint32_t *registers[32];
    for (int l = 0; l < 32; l++) {
        const mma_io *x = (const mma_io *)w->lane[l]->io;
        const int group = l / 4, pair = l % 4 * 2;
        registers[l] = x->a;
        for (int i = 0; i < 2; i++) {
            b[pair + 8 * i][group] = element(x->b[i] & 0xffff, x->is_f16);
            b[pair + 8 * i + 1][group] = element(x->b[i] >> 16, x->is_f16);
        }
        for (int i = 0; i < 4; i++)
            c[group + i / 2 * 8][pair + i % 2] = x->c[i];
    }
    gather_a(a, registers, ((const mma_io *)w->lane[0]->io)->is_f16);
    multiply<8>(c, a, b, 8);
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            ((const mma_io *)w->lane[l]->io)->c[i] = c[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

/* --- ldmatrix --- */

struct ldmatrix_io {
    uint32_t *r, addr;
    bool trans;
};

NO_ASAN static void combine_ldmatrix(warp *w, unsigned)
{
    uint32_t rows[32][4]; /* row l % 8 of matrix l / 8, which lane l addresses */
    for (int l = 0; l < 32; l++)
        memcpy(rows[l], me->window + ((const ldmatrix_io *)w->lane[l]->io)->addr, 16);
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            const ldmatrix_io *x = (const ldmatrix_io *)w->lane[l]->io;
            if (!x->trans) {
                x->r[i] = rows[8 * i + l / 4][l % 4];
                continue;
            }
            /* Element (row 2 (l % 4), column l / 4), and below it the one of the next row. */
            const int row = 8 * i + l % 4 * 2, column = l / 4, shift = column % 2 * 16;
            x->r[i] = (rows[row][column / 2] >> shift & 0xffff) |
                      (rows[row + 1][column / 2] >> shift & 0xffff) << 16;
        }
}

/* --- wgmma --- */

static void check_descriptor(uint64_t d, const thread *t)
{
    if (d >> 62 != 1 || d >> 49 & 7 || d >> 3 & 7)
        report("wgmma's descriptor %016llx: the emulator knows the 128-byte swizzle with tiles "
               "that begin at multiples of 1024 bytes: %s",
               (unsigned long long)d, name_of_thread(me, t).c_str());
}

/* The byte offsets of a descriptor. */
static uint32_t start_address(uint64_t d)
{
    return (uint32_t)(d & 0x3fff) * 16;
}
static uint32_t leading_offset(uint64_t d)
{
    return (uint32_t)(d >> 16 & 0x3fff) * 16;
}
static uint32_t stride_offset(uint64_t d)
{
    return (uint32_t)(d >> 32 & 0x3fff) * 16;
}

/* Return 8 elements at `offset` of the tile of a descriptor. The swizzle is one of addresses. */
NO_ASAN static const uint16_t *tile_elements(const warp *w, uint64_t d, uint32_t offset)
{
    uint32_t at = start_address(d) + offset;
    at ^= (at >> 7 & 7) << 4;
    if (at + 16 > SHARED_BYTES)
        report("wgmma reads shared memory at %u", at);
    touch(me->window + at, 16, READ | PROXY | WARP_WIDE, w->lane[0]->pc);
    return (const uint16_t *)(me->window + at);
}

/* The 16 rows of A that belong to the warp. As far as writes of other warps are concerned, each
 * warp reads all 64 rows. */
NO_ASAN static void load_a(float (&a)[16][16], const warp *w, const async_product *p)
{
    const int first = w->lane[0]->index / 32 % 4 * 16;
    const uint32_t stride = stride_offset(p->a_desc);
    for (int row = 0; row < 64; row++) {
        const bool is_own = row >= first && row < first + 16;
        for (int k = 0; k < 16 && (is_own || checks_bounds); k += 8) {
            const uint16_t *x = tile_elements(w, p->a_desc,
                                              (uint32_t)row / 8 * stride + (uint32_t)row % 8 * 128 +
                                                  (uint32_t)k * 2);
            for (int e = 0; e < 8 && is_own; e++)
                a[row - first][k + e] = element(x[e], p->is_f16);
        }
    }
}

NO_ASAN static void load_b(float (&b)[16][256], const warp *w, const async_product *p)
{
    const uint64_t d = p->b_desc;
    const uint32_t stride = stride_offset(d), leading = leading_offset(d);
    if (!p->trans_b) { /* rows of n in which k is contiguous */
        for (int j = 0; j < p->n; j++)
            for (int k = 0; k < 16; k += 8) {
                const uint16_t *x = tile_elements(
                    w, d, (uint32_t)j / 8 * stride + (uint32_t)j % 8 * 128 + (uint32_t)k * 2);
                for (int e = 0; e < 8; e++)
                    b[k + e][j] = element(x[e], p->is_f16);
            }
        return;
    }
    for (int k = 0; k < 16; k++) /* rows of k in which the 64 n of a panel are contiguous */
        for (int j = 0; j < p->n; j += 8) {
            const uint16_t *x =
                tile_elements(w, d,
                              (uint32_t)j / 64 * leading + (uint32_t)k / 8 * stride +
                                  (uint32_t)k % 8 * 128 + (uint32_t)j % 64 * 2);
            for (int e = 0; e < 8; e++)
                b[k][j + e] = element(x[e], p->is_f16);
        }
}

/* The place of accumulator j of lane l among the 16 rows of its warp. */
static inline int accumulator_row(int l, int j)
{
    return l / 4 + (j >> 1 & 1) * 8;
}
static inline int accumulator_column(int l, int j)
{
    return j / 4 * 8 + l % 4 * 2 + (j & 1);
}

NO_ASAN static void run_product(warp *w, int i)
{
    static thread_local float a[16][16], b[16][256], c[16][256];
    const async_product *p = &w->lane[0]->products[i];
    const uint32_t *registers[32];
    for (int l = 0; l < 32; l++) {
        const async_product *q = &w->lane[l]->products[i];
        if (q->b_desc != p->b_desc || q->a_desc != p->a_desc || q->n != p->n)
            report("wgmma's descriptors differ between lanes: %s",
                   name_of_thread(me, w->lane[l]).c_str());
        registers[l] = q->a;
    }
    if (p->in_registers)
        gather_a(a, registers, p->is_f16);
    else
        load_a(a, w, p);
    load_b(b, w, p);
    for (int l = 0; l < 32; l++) {
        const async_product *q = &w->lane[l]->products[i];
        const float *old = q->is_first ? q->old : q->c;
        for (int j = 0; j < p->n / 2; j++)
            c[accumulator_row(l, j)][accumulator_column(l, j)] = q->add ? old[j] : 0;
    }
    multiply<256>(c, a, b, p->n);
    for (int l = 0; l < 32; l++)
        for (int j = 0; j < p->n / 2; j++)
            w->lane[l]->products[i].c[j] = c[accumulator_row(l, j)][accumulator_column(l, j)];
}

/* Run the products of all groups but the last `pending`. */
NO_ASAN static void combine_wgmma_wait(warp *w, unsigned)
{
    const thread *t = w->lane[0];
    const int first_pending = t->product_group - *(const int *)t->io;
    int n = 0;
    while (n < t->n_products && t->products[n].group < first_pending)
        n++;
    for (int l = 1; l < 32; l++)
        if (w->lane[l]->n_products != t->n_products ||
            w->lane[l]->product_group != t->product_group)
            report("lanes of a warp issued different numbers of wgmma: %s",
                   name_of_thread(me, w->lane[l]).c_str());
    for (int i = 0; i < n; i++)
        run_product(w, i);
    for (int l = 0; l < 32; l++) {
        thread *x = w->lane[l];
        x->fenced = false;
        x->n_products -= n;
        memmove(x->products, x->products + n, (size_t)x->n_products * sizeof x->products[0]);
    }
}
} // namespace emu

using namespace emu;

void emu_ldmatrix(uint32_t *r, uint32_t addr, bool trans)
{
    if (addr % 16)
        report("ldmatrix: a row is not aligned to 16 bytes: %s",
               name_of_thread(me, me->current).c_str());
    touch(emu_smem_pointer(addr), 16, READ | WARP_WIDE, __builtin_return_address(0));
    ldmatrix_io io = {r, addr, trans};
    whole_warp("ldmatrix", &io, combine_ldmatrix);
}

void emu_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1, bool is_f16)
{
    mma_io io = {c, a, {b0, b1}, is_f16};
    whole_warp("mma.sync", &io, combine_mma);
}

NO_ASAN void emu_wgmma(float *c, int n, const uint32_t *a, uint64_t a_desc, uint64_t b_desc,
                       int add, int trans_b, bool is_f16)
{
    thread *t = (thread *)emu_self;
    if (!t->fenced)
        report("wgmma without wgmma.fence since the last wait: %s", name_of_thread(me, t).c_str());
    if (t->n_products == MOST_PRODUCTS || n > 256)
        report("more than %d wgmma under way: %s", MOST_PRODUCTS, name_of_thread(me, t).c_str());
    check_descriptor(b_desc, t);
    if (!a)
        check_descriptor(a_desc, t);
    async_product *p = &t->products[t->n_products];
    p->c = c;
    p->n = n;
    p->add = add;
    p->trans_b = trans_b;
    p->group = t->product_group;
    p->is_f16 = is_f16;
    p->in_registers = a != NULL;
    p->a_desc = a_desc;
    p->b_desc = b_desc;
    if (a)
        memcpy(p->a, a, sizeof p->a);
    p->is_first = true;
    for (int i = 0; i < t->n_products; i++)
        if (t->products[i].c == c)
            p->is_first = false;
    for (int i = 0; p->is_first && i < n / 2; i++) {
        p->old[i] = c[i];
        c[i] = NAN;
    }
    t->n_products++;
}

void emu_wgmma_fence(void)
{
    ((thread *)emu_self)->fenced = true;
}

void emu_wgmma_commit(void)
{
    ((thread *)emu_self)->product_group++;
}

void emu_wgmma_wait(int pending)
{
    ((thread *)emu_self)->pc = __builtin_return_address(0);
    whole_warp("wgmma.wait_group", &pending, combine_wgmma_wait);
}

void emu_fence_proxy_async(void)
{
    ((thread *)emu_self)->proxy_fences++;
}
