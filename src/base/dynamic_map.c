/* See dynamic_map.h. */
#include "src/base/dynamic_map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static fsdp_dynamic_map maps[2]; /* [0]: unsigned; [1]: signed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Return element k of torch.linspace(0.1, 1, n). Like torch, compute it from the nearer end, with
 * one fused multiply-add, which rounds once. */
static float linspace(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - 1 - k), 1.0f);
}

static void fill_values(float *value, int is_signed)
{
    int at = 0;
    for (int i = 0; i < 7; i++) { /* each of the 7 bits of the exponent has its own power of ten */
        const int n = (is_signed ? 1 << i : 2 << i) + 1;
        const float power = (float)pow(10.0, i - 6);
        for (int k = 0; k + 1 < n; k++) {
            const float x = power * ((linspace(k, n) + linspace(k + 1, n)) / 2.0f);
            value[at++] = x;
            if (is_signed)
                value[at++] = -x;
        }
    }
    value[at++] = 0.0f;
    value[at] = 1.0f;
    qsort(value, FSDP_MAP_VALUES, sizeof *value, compare);
}

/* Return the code of x by going through all codes. */
static uint8_t search(const fsdp_dynamic_map *map, float x)
{
    int code = 0;
    while (code + 1 < FSDP_MAP_VALUES && x > map->bound[code])
        code++;
    return (uint8_t)code;
}

static void fill_map(fsdp_dynamic_map *map, int is_signed)
{
    fill_values(map->value, is_signed);
    for (int c = 0; c + 1 < FSDP_MAP_VALUES; c++)
        map->bound[c] = (map->value[c] + map->value[c + 1]) / 2.0f;
    map->bound[FSDP_MAP_VALUES - 1] = INFINITY;
    for (int b = 0; b < FSDP_MAP_BUCKETS; b++) {
        const int octave = b / FSDP_MAP_PER_OCTAVE, part = b % FSDP_MAP_PER_OCTAVE;
        const float low = ldexpf(1.0f + (float)part / FSDP_MAP_PER_OCTAVE, octave - 24);
        const float high = ldexpf(1.0f + (float)(part + 1) / FSDP_MAP_PER_OCTAVE, octave - 24);
        /* The first bucket also contains zero and all magnitudes below its lower end. */
        map->first[0][b] = search(map, b ? low : 0.0f);
        map->first[1][b] = search(map, b + 1 < FSDP_MAP_BUCKETS ? -high : -INFINITY);
    }
}

static void fill_maps(void)
{
    fill_map(&maps[0], 0);
    fill_map(&maps[1], 1);
}

const fsdp_dynamic_map *fsdp_dynamic_map_signed(void)
{
    pthread_once(&once, fill_maps);
    return &maps[1];
}

const fsdp_dynamic_map *fsdp_dynamic_map_unsigned(void)
{
    pthread_once(&once, fill_maps);
    return &maps[0];
}
