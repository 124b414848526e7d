/* Reading NF4 on a CUDA device: the values have the bits of the CPU. */
#include "tests/cuda/shifted.h"

/* The arrays of a part; all but `nested` and `map` on both devices. */
typedef struct part {
    shifted out, packed, absmax, codes;
    float nested[64], map[FSDP_NF4_MAP];
    int64_t n, block, nested_block;
    fsdp_dtype dtype;
} part;

static shifted bytes_of(conform *x, int64_t n, int64_t shift, int first)
{
    const shifted s = shifted_output(x, FSDP_DTYPE_U8, n, shift);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)s.host)[i] = (uint8_t)(first + i * 53);
    conform_send(x, s.array);
    return s;
}

static void make_part(conform *x, part *p, int64_t shift)
{
    const int64_t blocks = (p->n + p->block - 1) / p->block;
    p->out = shifted_output(x, p->dtype, p->n, shift);
    p->packed = bytes_of(x, (p->n + 1) / 2, shift, 3);
    p->absmax = shifted_input(x, FSDP_DTYPE_F32, blocks, shift, 2, 0.0, 2.0);
    p->codes = bytes_of(x, blocks, shift, 100);
    fill_uniform(p->nested, FSDP_DTYPE_F32, 64, 5, 0.0, 1.0);
    fsdp_nf4_fill_map(p->map);
}

static void read_part(conform *x, const part *p, bool is_double, bool device)
{
    fsdp_nf4_args args = {.out = device ? p->out.device : p->out.host,
                          .dtype = p->dtype,
                          .n = p->n,
                          .packed = device ? p->packed.device : p->packed.host,
                          .block = p->block};
    if (is_double) {
        args.codes = device ? p->codes.device : p->codes.host;
        args.nested = p->nested;
        args.nested_block = p->nested_block;
        args.offset = 0.7f;
        args.map = p->map;
    } else {
        args.absmax = device ? p->absmax.device : p->absmax.host;
    }
    if (device)
        x->dk->nf4_dequantize(x->dc, &args);
    else
        x->k->nf4_dequantize(x->c, &args);
}

/* The last block may be short and the last byte may have one element. Blocks of 6 and of 10
 * elements are no power of two, and eight elements may belong to several of them. */
TEST(nf4_gives_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 7, 64, 333, 4096, 5001};
    static const int64_t blocks[] = {64, 64, 6, 128, 64, 64, 10};
    static const int64_t nested_blocks[] = {256, 256, 3, 256, 2, 5, 8};
    CONFORM_OPEN(x);
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < 6; i++) {
            part p = {.n = counts[s],
                      .block = blocks[s],
                      .nested_block = nested_blocks[s],
                      .dtype = float_dtypes[i % 3]};
            make_part(&x, &p, (s + i) % 3 == 0);
            read_part(&x, &p, i < 3, false);
            read_part(&x, &p, i < 3, true);
            conform_equal(&x, p.out.array, "nf4_dequantize");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
