/* The parts that the kernels of element-wise optimizers share. The Makefile compiles these kernels
 * with -fmad=false, so that products and sums are rounded separately, as on the CPU. So the results
 * have the same bits as on the CPU, except that the bits of a NaN may differ.
 * src/kernels/cpu/isa/optim.c explains the formulas.
 *
 * A block updates a chunk of a tensor. One launch updates the chunks of many tensors: Note [Tables]
 * in tables.h. Scalars, such as the learning rate, change in each step, so they are arguments of
 * the kernel and not a part of the table. Tensors that are stored in different ways need different
 * kernels, so there is one launch for each way that occurs. */
#pragma once
#include <math.h>
#include <string.h>

#include "src/kernels/cuda/four_halves.cuh"
#include "src/kernels/cuda/tables.cuh"

enum {
    THREADS = 256,
    CHUNK = 4096,   /* number of elements; a multiple of 4 * THREADS */
    MOST_SETS = 16, /* maximum number of different sets of scalars in one launch */
};

/* --- a parameter --- */

/* Which arrays of struct parameter contain the parameter. */
enum stored_as {
    STORED_AS_FLOATS,   /* param */
    STORED_AS_HALVES,   /* halves */
    STORED_ONLY_IN_COPY /* copy */
};

struct parameter {
    float *param;
    fsdp_halves halves;
    void *copy; /* NULL: there is no copy */
};

template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void open_param(float (&x)[4], const parameter &p, int64_t i, int64_t n)
{
    if (STORAGE == STORED_AS_HALVES)
        load_four_halves<WHOLE>(x, p.halves, i, n);
    else if (STORAGE == STORED_AS_FLOATS)
        load_four<WHOLE>(x, p.param, i, n);
    else
        load_four<WHOLE>(x, (const COPY *)p.copy, i, n);
}

template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void close_param(const parameter &p, const float (&x)[4], int64_t i, int64_t n)
{
    if (STORAGE == STORED_AS_HALVES)
        store_four_halves<WHOLE>(p.halves, x, i, n);
    else if (STORAGE == STORED_AS_FLOATS)
        store_four<WHOLE>(p.param, x, i, n);
    if (p.copy)
        store_four<WHOLE>((COPY *)p.copy, x, i, n);
}

/* A chunk is processed in rounds, in which each thread updates four elements. Return the first of
 * this thread's elements in round k. */
FSDP_DEVICE int64_t element_of(int64_t chunk, int k)
{
    return chunk * CHUNK + k * 4 * THREADS + (int64_t)threadIdx.x * 4;
}

/* Return true if at least one thread of this warp has an element before n. `i` is this thread's
 * first element. */
FSDP_DEVICE bool warp_begins_before(int64_t i, int64_t n)
{
    return i - threadIdx.x % 32 * 4 < n;
}

/* How the arrays of a tensor are stored. All tensors of one launch have the same layout. */
struct layout {
    stored_as param;
    bool whole; /* true: all arrays are aligned for accesses of four elements */
    fsdp_dtype copy;
};

template <typename ARGS> static stored_as storage_of(const ARGS *a)
{
    return a->param ? STORED_AS_FLOATS : a->halves.hi ? STORED_AS_HALVES : STORED_ONLY_IN_COPY;
}

template <typename ARGS> static parameter parameter_of(const ARGS *a)
{
    parameter p = {a->param, a->halves, a->copy};
    if (a->param)
        p.halves = fsdp_halves{};
    return p;
}

static inline bool array_has_fours(const void *array, fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32  ? has_fours<float>(array)
           : dtype == FSDP_DTYPE_U8 ? has_fours<uint8_t>(array)
                                    : has_fours<uint16_t>(array);
}

/* Return the layout of the tensor that `a` describes. `others` are the arrays of the tensor besides
 * the parameter and its copy. */
template <typename ARGS, typename... P> static layout layout_of(const ARGS *a, P... others)
{
    const parameter p = parameter_of(a);
    return {storage_of(a),
            has_fours<float>(p.param, others...) && has_fours<uint16_t>(p.halves.hi, p.halves.lo) &&
                array_has_fours(a->copy, a->copy_dtype),
            a->copy ? a->copy_dtype : FSDP_DTYPE_F32};
}

static inline bool is_same(const layout &a, const layout &b)
{
    return a.param == b.param && a.whole == b.whole && a.copy == b.copy;
}

/* with_storage() and with_layout() call f with three arguments. Only the types of these arguments
 * matter. The types give f three things at compile time: the constant STORAGE, the constant WHOLE,
 * and COPY, the type of the copy's elements. */
template <typename T, T VALUE> struct constant {
    static constexpr T value = VALUE;
};
template <bool WHOLE, typename F> static void with_storage(stored_as param, fsdp_dtype copy, F f)
{
    with_type(copy, [&](auto zero) {
        if (param == STORED_AS_FLOATS)
            f(constant<stored_as, STORED_AS_FLOATS>(), constant<bool, WHOLE>(), zero);
        else if (param == STORED_AS_HALVES)
            f(constant<stored_as, STORED_AS_HALVES>(), constant<bool, WHOLE>(), zero);
        else
            f(constant<stored_as, STORED_ONLY_IN_COPY>(), constant<bool, WHOLE>(), zero);
    });
}
template <typename F> static void with_layout(const layout &l, F f)
{
    if (l.whole)
        with_storage<true>(l.param, l.copy, f);
    else
        with_storage<false>(l.param, l.copy, f);
}

/* --- many tensors --- */

/* The different sets of scalars (learning rate, betas, ...) in one launch. Most tensors of an
 * optimizer share one set. */
template <typename SCALARS> struct sets_of {
    SCALARS at[MOST_SETS];
    int n;
};

/* Return the index of the set of scalars that equals `s`. If there is no such set, add `s` and
 * return its index. Return -1 if there are MOST_SETS sets already. */
template <typename SCALARS> static int set_of(sets_of<SCALARS> *sets, const SCALARS &s)
{
    for (int i = 0; i < sets->n; i++)
        if (memcmp(&sets->at[i], &s, sizeof s) == 0)
            return i;
    if (sets->n == MOST_SETS)
        return -1;
    sets->at[sets->n] = s;
    return sets->n++;
}

static inline int64_t chunks_of(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* Update those of the tensors [first, n) that have layout l, by one launch. If a tensor needs a new
 * set of scalars but there are MOST_SETS sets already, stop, and return the index of this tensor.
 * Return n if all tensors of layout l have been updated. The class METHOD describes an optimizer:
 *     ARGS, TENSOR, SCALARS     types: the arguments of a tensor, its entry in the table, scalars
 *     TABLE                     its table
 *     bool is_for(args)         whether this METHOD updates the tensor; others are left unchanged
 *     int64_t chunks_of(args)   the number of blocks that update the tensor; 0 if it is empty
 *     layout layout_of(args), void scalars_of(SCALARS *, args), void fill(TENSOR *, args)
 *     launch<STORAGE, WHOLE, COPY>(context, blocks, table, sets, clip) */
template <typename METHOD>
static size_t update_some(fsdp_cuda_context *c, const typename METHOD::ARGS *tensors, size_t first,
                          size_t n, const layout &l, const fsdp_clip_result *clip)
{
    table_writer<typename METHOD::TENSOR> writer;
    table_of<typename METHOD::TENSOR> table;
    sets_of<typename METHOD::SCALARS> sets;
    size_t i = first;
    memset(&sets, 0, sizeof sets);
    if (!writer.begin(c, METHOD::TABLE, n - first))
        return n;
    for (; i < n; i++) {
        typename METHOD::SCALARS scalars;
        const typename METHOD::ARGS *a = &tensors[i];
        if (!METHOD::is_for(a) || !a->n || !is_same(METHOD::layout_of(a), l))
            continue;
        memset(&scalars, 0, sizeof scalars);
        METHOD::scalars_of(&scalars, a);
        const int set = set_of(&sets, scalars);
        if (set < 0)
            break;
        typename METHOD::TENSOR *t = writer.add(METHOD::chunks_of(a));
        METHOD::fill(t, a);
        t->set = set;
    }
    if (writer.end(&table))
        with_layout(l, [&](auto param, auto whole, auto copy) {
            METHOD::template launch<decltype(param)::value, decltype(whole)::value, decltype(copy)>(
                c, writer.blocks(), table, sets, clip);
        });
    return i;
}

/* Return true if METHOD updates tensor i, and updates no earlier tensor of the same layout. */
template <typename METHOD> static bool begins_layout(const typename METHOD::ARGS *tensors, size_t i)
{
    if (!tensors[i].n || !METHOD::is_for(&tensors[i]))
        return false;
    const layout l = METHOD::layout_of(&tensors[i]);
    for (size_t j = 0; j < i; j++)
        if (tensors[j].n && METHOD::is_for(&tensors[j]) &&
            is_same(METHOD::layout_of(&tensors[j]), l))
            return false;
    return true;
}

template <typename METHOD>
static void update_all(fsdp_cuda_context *c, const typename METHOD::ARGS *tensors, size_t n,
                       const fsdp_clip_result *clip)
{
    for (size_t i = 0; i < n; i++)
        if (begins_layout<METHOD>(tensors, i))
            for (size_t first = i; first < n;)
                first =
                    update_some<METHOD>(c, tensors, first, n, METHOD::layout_of(&tensors[i]), clip);
}
