/* Implements `fsdp --version`. If a library reports its version at run time, that version is
 * printed, and not the one of its header. */
#include <jansson.h>
#ifdef FSDP_HAVE_DNNL
#include <dnnl.h>
#endif
#ifdef FSDP_HAVE_CSV
#include <csv.h>
#endif
#ifdef FSDP_HAVE_YAML
#include <yaml.h>
#endif
#ifdef FSDP_HAVE_HWLOC
#include <hwloc.h>
#endif
#ifdef FSDP_HAVE_CAIRO
#include <cairo.h>
#endif
#ifdef FSDP_HAVE_MICROHTTPD
#include <microhttpd.h>
#endif
#ifdef FSDP_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif
#ifdef FSDP_HAVE_UTF8PROC
#include <utf8proc.h>
#endif
#ifdef FSDP_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef FSDP_HAVE_ZSTD
#include <zstd.h>
#endif
#ifdef FSDP_HAVE_LZ4
#include <lz4.h>
#endif

#include <fsdp/base.h>

#include "src/cli/version.h"
#include "src/report/human.h"
#include "src/tensor/cards.h"

static void print_optional(FILE *to, const char *name, const char *version, const char *used_for)
{
    if (version)
        fprintf(to, "  %-13s %s\n", name, version);
    else
        fprintf(to, "  %-13s not found when built: no %s\n", name, used_for);
}

static const char *onednn_version(void)
{
#ifdef FSDP_HAVE_DNNL
    static char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
#else
    return NULL;
#endif
}

static const char *yaml_version(void)
{
#ifdef FSDP_HAVE_YAML
    return yaml_get_version_string();
#else
    return NULL;
#endif
}

static const char *csv_version(void)
{
#ifdef FSDP_HAVE_CSV
    static char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", CSV_MAJOR, CSV_MINOR, CSV_RELEASE);
    return text;
#else
    return NULL;
#endif
}

static const char *hwloc_version(void)
{
#ifdef FSDP_HAVE_HWLOC
    static char text[32];
    unsigned v = hwloc_get_api_version();
    snprintf(text, sizeof text, "%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
    return text;
#else
    return NULL;
#endif
}

static const char *plot_version(void)
{
#ifdef FSDP_HAVE_CAIRO
    return cairo_version_string();
#else
    return NULL;
#endif
}

static const char *microhttpd_version(void)
{
#ifdef FSDP_HAVE_MICROHTTPD
    return MHD_get_version();
#else
    return NULL;
#endif
}

static const char *pcre2_version(void)
{
#ifdef FSDP_HAVE_PCRE2
    static char text[64];
    return pcre2_config(PCRE2_CONFIG_VERSION, text) > 0 ? text : "found";
#else
    return NULL;
#endif
}

static const char *utf8proc_found_version(void)
{
#ifdef FSDP_HAVE_UTF8PROC
    return utf8proc_version();
#else
    return NULL;
#endif
}

static const char *flatbuffers_version(void)
{
#ifdef FSDP_HAVE_FLATBUFFERS
    return "found";
#else
    return NULL;
#endif
}

static const char *zlib_found_version(void)
{
#ifdef FSDP_HAVE_ZLIB
    return zlibVersion();
#else
    return NULL;
#endif
}

static const char *zstd_version(void)
{
#ifdef FSDP_HAVE_ZSTD
    return ZSTD_versionString();
#else
    return NULL;
#endif
}

static const char *lz4_version(void)
{
#ifdef FSDP_HAVE_LZ4
    return LZ4_versionString();
#else
    return NULL;
#endif
}

static void print_devices(FILE *to)
{
    const bool has_cuda = fsdp_card_functions() != NULL;
    fprintf(to, "devices:");
    for (size_t i = 0, shown = 0; fsdp_device_names[i]; i++)
        if (has_cuda || strcmp(fsdp_device_names[i], "cuda") != 0)
            fprintf(to, "%s %s", shown++ ? "," : "", fsdp_device_names[i]);
    fprintf(to, "%s\n", has_cuda ? "" : "; no cuda in this build");
}

/* --- CUDA --- */

/* Print a version of CUDA: 12040 is 12.4. */
static void print_cuda_version(FILE *to, const char *name, int version, const char *if_none)
{
    if (version)
        fprintf(to, "  %-13s CUDA %d.%d\n", name, version / 1000, version % 1000 / 10);
    else
        fprintf(to, "  %-13s %s\n", name, if_none);
}

static void print_library(FILE *to, const char *name, const char *used_for)
{
    char version[32];
    if (fsdp_card_functions()->library_version(name, version))
        fprintf(to, "  %-13s %s\n", name, version);
    else
        fprintf(to, "  %-13s not found: %s\n", name, used_for);
}

static void print_card(FILE *to, int ordinal)
{
    fsdp_card card;
    char name[FSDP_DEVICE_NAME_BYTES];
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    if (fsdp_card_describe(ordinal, &card) != FSDP_OK) {
        fprintf(to, "  %-13s %s\n", name, fsdp_last_error());
        return;
    }
    fprintf(to, "  %-13s %s, %s, compute capability %d.%d: %s%s\n", name, card.name,
            fsdp_human_bytes(card.bytes).text, card.capability / 10, card.capability % 10,
            card.capability < FSDP_CARD_CAPABILITY ? "too old, at least 8.0 is needed"
            : *card.code                           ? "runs this program's "
                                                   : "this program has no code for it",
            card.capability < FSDP_CARD_CAPABILITY ? "" : card.code);
}

static void print_cuda(FILE *to)
{
    const fsdp_card_ops *cards = fsdp_card_functions();
    int driver, runtime, n = 0;
    if (!cards)
        return;
    cards->versions(&driver, &runtime);
    fprintf(to, "cuda: compiled for %s\n", cards->code);
    print_cuda_version(to, "runtime", runtime, "none");
    print_cuda_version(to, "driver", driver, "none: libcuda.so.1 was not found");
    if (fsdp_cards_count(&n) != FSDP_OK)
        fprintf(to, "  %-13s none\n", "cards");
    for (int i = 0; i < n; i++)
        print_card(to, i);
    print_library(to, "cublasLt", "it multiplies matrices on a card");
    print_library(to, "nccl", "no effect, this version uses one card");
}

void fsdp_print_version(FILE *to)
{
    fprintf(to, "fsdp %s\n", FSDP_VERSION);
#if defined(__clang__)
    fprintf(to, "compiler: clang %s\n", __clang_version__);
#else
    fprintf(to, "compiler: gcc %s\n", __VERSION__);
#endif
    fprintf(to, "cpu: ");
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++)
        fprintf(to, "%s%s", *isa, isa[1] ? ", " : " (best first; --isa chooses)\n");
    print_devices(to);
    print_cuda(to);
    fprintf(to, "transports: shm, threads\nlibraries:\n");
    fprintf(to, "  %-13s %s\n", "jansson", JANSSON_VERSION);
    print_optional(to, "oneDNN", onednn_version(), "fast products below AVX-512 (plain loops)");
    print_optional(to, "libcsv", csv_version(), "CSV files");
    print_optional(to, "libyaml", yaml_version(), "--config FILE.yaml");
    print_optional(to, "hwloc", hwloc_version(), "binding by topology (equal blocks of cores)");
    print_optional(to, "cairo", plot_version(), "--plot");
    print_optional(to, "libmicrohttpd", microhttpd_version(), "'fsdp dashboard'");
    print_optional(to, "pcre2", pcre2_version(), "tokenizers that split by a regular expression");
    print_optional(to, "utf8proc", utf8proc_found_version(),
                   "T5's tokenizer, and others that normalize Unicode");
    print_optional(to, "flatbuffers", flatbuffers_version(), "Arrow folders (save_to_disk)");
    print_optional(to, "zlib", zlib_found_version(), ".gz files");
    print_optional(to, "zstd", zstd_version(), ".zst files");
    print_optional(to, "lz4", lz4_version(), "Arrow files compressed with LZ4");
}
