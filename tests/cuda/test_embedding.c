/* embedding and its gradient on a CUDA device, compared with the CPU. */
#include "tests/cuda/conform.h"

static const int64_t widths[] = {0, 1, 5, 8, 24, 136, 1032};
enum {
    N_WIDTHS = sizeof widths / sizeof *widths
};

/* A lookup rounds once, so all bits are equal. */
TEST(embedding_equals_the_cpu)
{
    enum {
        V = 23,
        TOKENS = 37
    };
    CONFORM_OPEN(x);
    for (int w = 0; w < N_WIDTHS; w++)
        for (int d = 0; d < 9; d++)
            for (int64_t tokens = 0; tokens <= TOKENS; tokens += TOKENS) {
                const fsdp_dtype dtype = float_dtypes[d % 3], w_dtype = float_dtypes[d / 3];
                int32_t ids[TOKENS];
                for (int i = 0; i < TOKENS; i++)
                    ids[i] = i * 5 % V;
                x.offset = (w + d) % 2 ? sizeof(float) : 0;
                conform_array *weight = conform_input(&x, w_dtype, V * widths[w], 1, -2.0, 2.0);
                conform_array *out = conform_output(&x, dtype, tokens * widths[w]);
                x.dk->embedding(x.dc, out->device, dtype, weight->device, w_dtype, ids, tokens,
                                widths[w]);
                x.k->embedding(x.c, out->host, dtype, weight->host, w_dtype, ids, tokens,
                               widths[w]);
                memset(ids, 0, sizeof ids); /* the call has copied them */
                conform_equal(&x, out, "embedding");
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

typedef struct gradient_case {
    fsdp_dtype dw_dtype, dtype;
    int64_t tokens, width, vocab;
    int32_t padding_idx;
    float beta;
} gradient_case;

/* Runs both devices. Returns dw. */
static conform_array *run_gradient(conform *x, const gradient_case *k, const int32_t *ids)
{
    int32_t *sent = malloc((size_t)(k->tokens + 1) * sizeof *sent);
    conform_array *dy = conform_input(x, k->dtype, k->tokens * k->width, 1, -1.0, 1.0);
    conform_array *dw = k->beta != 0.0f
                            ? conform_input(x, k->dw_dtype, k->vocab * k->width, 2, -1.0, 1.0)
                            : conform_output(x, k->dw_dtype, k->vocab * k->width);
    memcpy(sent, ids, (size_t)k->tokens * sizeof *sent);
    x->dk->embedding_backward(x->dc, dw->device, k->dw_dtype, k->beta, dy->device, k->dtype, sent,
                              k->tokens, k->width, k->vocab, k->padding_idx);
    free(sent); /* the call has copied them */
    x->k->embedding_backward(x->c, dw->host, k->dw_dtype, k->beta, dy->host, k->dtype, ids,
                             k->tokens, k->width, k->vocab, k->padding_idx);
    return dw;
}

/* An id that occurs at most 128 times is added in the CPU's order, to the same bits. */
TEST(embedding_backward_equals_the_cpu)
{
    enum {
        V = 5000,
        TOKENS = 150
    };
    static const int32_t paddings[] = {-1, 3};
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i < 100 ? (int32_t)(fsdp_mix64((uint64_t)i) % 7) : i * 31 % V;
    ids[7] = V - 1;
    CONFORM_OPEN(x);
    for (int w = 0; w < N_WIDTHS; w++)
        for (int d = 0; d < 9; d++) {
            const gradient_case k = {.dw_dtype = float_dtypes[d % 3],
                                     .dtype = float_dtypes[d / 3],
                                     .tokens = d == 4 ? w : TOKENS,
                                     .width = widths[w],
                                     .vocab = widths[w] > 100 ? 700 : V,
                                     .padding_idx = paddings[(w + d) % 2],
                                     .beta = (float)(d % 2)};
            int32_t some[TOKENS];
            for (int i = 0; i < TOKENS; i++)
                some[i] = ids[i] % (int32_t)k.vocab;
            if (widths[w] > 200 && d % 4)
                continue;
            x.offset = (w + d) % 3 == 1 ? sizeof(float) : 0;
            conform_equal(&x, run_gradient(&x, &k, some), "embedding_backward");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* Ids that occur 128, 129 and 1000 times: the last two are added in pieces. */
TEST(embedding_backward_of_frequent_ids_equals_the_cpu)
{
    enum {
        TOKENS = 128 + 129 + 1000 + 1
    };
    int32_t ids[TOKENS];
    int left[] = {128, 129, 1000, 1};
    for (int i = 0, next = 0; i < TOKENS; next++)
        if (left[next % 4]) {
            left[next % 4]--;
            ids[i++] = next % 4 * 2;
        }
    CONFORM_OPEN(x);
    for (int d = 0; d < 9; d++)
        for (int odd = 0; odd < 2; odd++) {
            const gradient_case k = {
                float_dtypes[d % 3], float_dtypes[d / 3], TOKENS, odd ? 13 : 16, 8,
                d == 5 ? 4 : -1,     (float)(d % 2)};
            conform_array *dw = run_gradient(&x, &k, ids);
            conform_near(&x, dw,
                         k.dw_dtype == FSDP_DTYPE_F32 ? 1e-6 : 2.0 * rounding_of(k.dw_dtype), 3e-5,
                         "embedding_backward");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
