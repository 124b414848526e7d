/* Boxes that overlap are found as by comparing all pairs. */
#include "src/dcp/box_overlap.h"
#include "src/base/assert.h"
#include "tests/test.h"

enum {
    MAX_BOXES = 40,
    NDIM = 3
};

typedef struct boxes {
    int64_t offsets[MAX_BOXES][NDIM], sizes[MAX_BOXES][NDIM];
    size_t n;
    int ndim;
} boxes;

static bool find(const boxes *b, size_t *x, size_t *y)
{
    fsdp_dcp_extent extents[MAX_BOXES];
    for (size_t i = 0; i < b->n; i++)
        extents[i] = (fsdp_dcp_extent){b->offsets[i], b->sizes[i], i};
    return fsdp_dcp_find_overlap(extents, b->n, b->ndim, x, y);
}

static bool is_common(const boxes *b, size_t i, size_t k)
{
    for (int d = 0; d < b->ndim; d++)
        if (b->offsets[i][d] >= b->offsets[k][d] + b->sizes[k][d] ||
            b->offsets[k][d] >= b->offsets[i][d] + b->sizes[i][d])
            return false;
    return true;
}

static bool has_overlap(const boxes *b)
{
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < i; k++)
            if (is_common(b, i, k))
                return true;
    return false;
}

TEST(random_boxes_overlap_as_pairs_say)
{
    uint32_t seed = 1;
    int found = 0, rounds = 4000;
    for (int round = 0; round < rounds; round++) {
        boxes b = {.n = (size_t)(round % MAX_BOXES), .ndim = 1 + round % NDIM};
        for (size_t i = 0; i < b.n; i++)
            for (int d = 0; d < b.ndim; d++) {
                seed = seed * 1664525u + 1013904223u;
                /* in some rounds, all boxes have the same offset in the first dimension */
                b.offsets[i][d] = d == 0 && round % 3 == 0 ? 5 : (int64_t)(seed >> 16) % 40;
                b.sizes[i][d] = 1 + (int64_t)(seed >> 8) % 4;
            }
        size_t x = 0, y = 0;
        const bool is = find(&b, &x, &y);
        ASSERT(is == has_overlap(&b));
        ASSERT(!is || (x < y && y < b.n && is_common(&b, x, y)));
        found += is;
    }
    ASSERT(found > rounds / 20 && found < rounds - rounds / 20);
}

/* Rows, columns and a grid that touch do not overlap; one box that is one too large does. */
TEST(boxes_that_touch_do_not_overlap)
{
    boxes b = {.n = MAX_BOXES, .ndim = 2};
    size_t x, y;
    for (int by = 0; by < 3; by++) {
        for (size_t i = 0; i < b.n; i++) {
            const int64_t k = (int64_t)i;
            b.offsets[i][0] = by == 0 ? 2 * k : by == 1 ? 0 : k / 8 * 2;
            b.offsets[i][1] = by == 0 ? 0 : by == 1 ? 2 * k : k % 8 * 2;
            b.sizes[i][0] = b.sizes[i][1] = 2;
        }
        ASSERT(!find(&b, &x, &y));
        b.sizes[20][by == 0 ? 0 : 1] = 3;
        ASSERT(find(&b, &x, &y));
        ASSERT(x == 20 && y == 21);
    }
    b.ndim = 0; /* two scalars are the same box */
    b.n = 2;
    ASSERT(find(&b, &x, &y));
    b.n = 1;
    ASSERT(!find(&b, &x, &y));
    fsdp_dcp_extent scalars[] = {{NULL, NULL, 1}, {NULL, NULL, 0}}; /* there are no offsets */
    ASSERT(fsdp_dcp_find_overlap(scalars, 2, 0, &x, &y));
    ASSERT(x == 0 && y == 1);
}
