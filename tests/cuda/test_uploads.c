/* Arrays of the host that kernels read on a CUDA device: Note [Uploads] in
 * src/kernels/cuda/uploads.h. */
#include "tests/cuda/conform.h"

/* Functions of uploads.h and context.h, which need the headers of CUDA. NULL in a build without
 * CUDA. @{ */
struct fsdp_cuda_context;
extern const void *fsdp_cuda_upload(struct fsdp_cuda_context *c, const void *src, size_t bytes)
    __attribute__((weak));
extern const void *fsdp_cuda_find_upload(struct fsdp_cuda_context *c, const void *key,
                                         size_t key_bytes) __attribute__((weak));
extern const void *fsdp_cuda_upload_for(struct fsdp_cuda_context *c, const void *key,
                                        size_t key_bytes, const void *src, size_t bytes)
    __attribute__((weak));
extern int64_t fsdp_cuda_upload_copies(fsdp_kernel_context *c) __attribute__((weak));
/* @} */

static struct fsdp_cuda_context *context_of(const conform *x)
{
    return (struct fsdp_cuda_context *)(void *)x->dc;
}

/* The device's bytes at `at` are those of `want`. */
static void check_bytes(conform *x, const void *at, const void *want, size_t bytes)
{
    fsdp_test *t = x->t;
    char *got = malloc(bytes + 1);
    ASSERT(at && got);
    ASSERT_INT((uintptr_t)at % 256, 0);
    ASSERT_OK(fsdp_device_to_host(x->gpu, got, at, bytes));
    ASSERT(memcmp(got, want, bytes) == 0);
    free(got);
}

TEST(an_array_is_copied_once)
{
    int32_t a[] = {1, 2, 3}, same[] = {1, 2, 3}, b[] = {1, 2, 4};
    CONFORM_OPEN(x);
    struct fsdp_cuda_context *c = context_of(&x);
    const int64_t before = fsdp_cuda_upload_copies(x.dc);
    const void *first = fsdp_cuda_upload(c, a, sizeof a);
    ASSERT(fsdp_cuda_upload(c, b, sizeof b) != first);
    ASSERT(fsdp_cuda_upload(c, a, 2 * sizeof *a) != first);
    ASSERT(fsdp_cuda_upload(c, same, sizeof same) == first);
    ASSERT_INT(fsdp_cuda_upload_copies(x.dc) - before, 3);
    check_bytes(&x, first, a, sizeof a);
    CHECK_HERE();
    a[2] = 5; /* at the same address of the host */
    check_bytes(&x, fsdp_cuda_upload(c, a, sizeof a), a, sizeof a);
    CHECK_HERE();
    check_bytes(&x, first, same, sizeof same);
    ASSERT(!fsdp_cuda_upload(c, a, 0));
    ASSERT(!fsdp_cuda_upload(c, NULL, 4));
    conform_close(&x);
}

TEST(an_array_is_found_by_its_key)
{
    const int32_t key[] = {7, 8}, other[] = {7, 9}, data[] = {1, 2, 3, 4}, more[] = {5};
    CONFORM_OPEN(x);
    struct fsdp_cuda_context *c = context_of(&x);
    ASSERT(!fsdp_cuda_find_upload(c, key, sizeof key));
    ASSERT(fsdp_cuda_upload(c, key, sizeof key)); /* an array with the bytes of a key */
    ASSERT(!fsdp_cuda_find_upload(c, key, sizeof key));
    const void *at = fsdp_cuda_upload_for(c, key, sizeof key, data, sizeof data);
    const void *of_other = fsdp_cuda_upload_for(c, other, sizeof other, more, sizeof more);
    ASSERT(fsdp_cuda_find_upload(c, key, sizeof key) == at);
    ASSERT(fsdp_cuda_find_upload(c, other, sizeof other) == of_other);
    check_bytes(&x, at, data, sizeof data);
    check_bytes(&x, of_other, more, sizeof more);
    CHECK_HERE();
    conform_close(&x);
}

/* Two uploads for one kernel, of arrays that come again and again while the ring turns. The second
 * upload may enter another segment of the ring. The first array must stay where it is. */
TEST(arrays_stay_until_their_kernel_has_begun)
{
    enum {
        ARRAYS = 45,
        MOST = 120000, /* elements */
        TURNS = 1500
    };
    static int32_t array[ARRAYS][MOST];
    CONFORM_OPEN(x);
    struct fsdp_cuda_context *c = context_of(&x);
    int64_t n[ARRAYS];
    const int64_t before = fsdp_cuda_upload_copies(x.dc);
    for (int i = 0; i < ARRAYS; i++) {
        n[i] = 1 + (int64_t)(fsdp_mix64((uint64_t)i) % (i % 5 ? 1000 : MOST));
        for (int64_t e = 0; e < n[i]; e++)
            array[i][e] = (int32_t)(i * MOST + e);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const uint64_t draw = fsdp_mix64((uint64_t)turn + 1000);
        /* Often the same few arrays. */
        const int i = (int)(draw % 3 ? draw / 8 % 6 : draw / 8 % ARRAYS);
        const int j = (int)((draw >> 32) % ARRAYS);
        const size_t bytes[] = {(size_t)n[i] * 4, (size_t)n[j] * 4};
        const void *first = NULL;
        if (turn % 2)
            first = fsdp_cuda_upload(c, array[i], bytes[0]);
        else if (!(first = fsdp_cuda_find_upload(c, &array[i], 64)))
            first = fsdp_cuda_upload_for(c, &array[i], 64, array[i], bytes[0]);
        const void *second = fsdp_cuda_upload(c, array[j], bytes[1]);
        check_bytes(&x, first, array[i], bytes[0]);
        check_bytes(&x, second, array[j], bytes[1]);
        CHECK_HERE();
    }
    const int64_t copies = fsdp_cuda_upload_copies(x.dc) - before;
    ASSERT(copies > TURNS / 4);
    ASSERT(copies < TURNS * 3 / 2);
    conform_close(&x);
}

/* The ring has turned, and overwrites the array. The key seems to be there, since what was written
 * over it is its beginning. */
TEST(what_is_overwritten_is_forgotten)
{
    enum {
        SEGMENT = 1 << 18 /* elements of a segment of the ring */
    };
    static int32_t segment[SEGMENT];
    const int32_t key[] = {7, 8, 9}, data[] = {1, 2, 3, 4};
    CONFORM_OPEN(x);
    struct fsdp_cuda_context *c = context_of(&x);
    ASSERT(fsdp_cuda_upload_for(c, key, sizeof key, data, sizeof data));
    ASSERT(fsdp_cuda_find_upload(c, key, sizeof key));
    for (int i = 0; i < 3; i++) {
        segment[0] = i;
        ASSERT(fsdp_cuda_upload(c, segment, sizeof segment));
    }
    ASSERT(fsdp_cuda_upload(c, key, sizeof *key));
    ASSERT(fsdp_cuda_upload(c, data, sizeof *data));
    ASSERT(!fsdp_cuda_find_upload(c, key, sizeof key));
    conform_close(&x);
}

/* An array that is larger than the ring replaces the ring, and all that it remembers. */
TEST(a_large_array_is_copied_too)
{
    enum {
        LARGE = 3 << 18
    };
    static int32_t large[LARGE];
    const int32_t small[] = {1, 2, 3};
    CONFORM_OPEN(x);
    struct fsdp_cuda_context *c = context_of(&x);
    for (int i = 0; i < LARGE; i++)
        large[i] = i;
    check_bytes(&x, fsdp_cuda_upload(c, small, sizeof small), small, sizeof small);
    for (int i = 0; i < 3; i++) {
        check_bytes(&x, fsdp_cuda_upload(c, large, sizeof large), large, sizeof large);
        check_bytes(&x, fsdp_cuda_upload(c, small, sizeof small), small, sizeof small);
        CHECK_HERE();
        large[0]--;
    }
    conform_close(&x);
}

/* The layers of a model have the same sequences. Their lists of tiles are copied once. */
TEST(attention_copies_its_tiles_once_for_all_layers)
{
    enum {
        ROWS = 40,
        DIM = 16
    };
    int32_t q_offsets[] = {0, 17, ROWS}, k_offsets[] = {0, 15, ROWS}, ends[] = {14, 30};
    CONFORM_OPEN(x);
    conform_array *in[3];
    for (uint64_t i = 0; i < 3; i++)
        in[i] = conform_input(&x, FSDP_DTYPE_F32, ROWS * DIM, i, -1.0, 1.0);
    conform_array *out = conform_output(&x, FSDP_DTYPE_F32, ROWS * DIM);
    conform_array *lse = conform_output(&x, FSDP_DTYPE_F32, ROWS);
    fsdp_attention_args args = {.dtype = FSDP_DTYPE_F32,
                                .n_sequences = 2,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_dim = DIM,
                                .q_offsets = q_offsets,
                                .k_offsets = k_offsets,
                                .q_ld = DIM,
                                .k_ld = DIM,
                                .v_ld = DIM,
                                .scale = 0.25f};
    const int64_t before = fsdp_cuda_upload_copies(x.dc);
    for (int call = 0; call < 20; call++) {
        args.causal = call % 4 > 0;
        args.window = call % 4 == 2 ? 5 : 0;
        args.k_ends = call % 4 == 3 ? ends : NULL;
        q_offsets[1] = call < 8 ? 17 : 20;
        k_offsets[1] = call < 12 ? 15 : 16;
        ends[1] = call < 16 ? 30 : 31;
        for (int device = 0; device < 2; device++) {
            args.q = device ? in[0]->device : in[0]->host;
            args.k = device ? in[1]->device : in[1]->host;
            args.v = device ? in[2]->device : in[2]->host;
            args.out = device ? out->device : out->host;
            args.lse = device ? lse->device : lse->host;
            ASSERT_OK((device ? x.dk : x.k)->attention(device ? x.dc : x.c, &args));
        }
        conform_near(&x, out, 1e-5, 1e-5, "attention");
        conform_near(&x, lse, 1e-5, 1e-5, "lse");
        CHECK_HERE();
    }
    ASSERT_INT(fsdp_cuda_upload_copies(x.dc) - before, 13);
    conform_close(&x);
}
