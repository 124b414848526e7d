/* Implements `fsdp --version`. If a library reports its version at run time, that version is
 * printed, and not the version in its header. */
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
#ifdef FSDP_HAVE_NETTLE
#include <nettle/version.h>
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

#include "src/base/str.h"
#include "src/cli/common/version.h"
#include "src/report/human.h"
#include "src/tensor/cards.h"

static void print_optional(fsdp_facts *to, const char *name, const char *version,
                           const char *used_for)
{
    char text[128];
    snprintf(text, sizeof text, "not found when built: no %s", used_for);
    if (version)
        fsdp_fact(to, name, "%s", version);
    else
        fsdp_fact_missing(to, name, text);
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

static const char *nettle_version(void)
{
#ifdef FSDP_HAVE_NETTLE
    static char text[32];
    snprintf(text, sizeof text, "%d.%d", nettle_version_major(), nettle_version_minor());
    return text;
#else
    return NULL;
#endif
}

/* The MPI library is loaded only when a rank needs it, so its version is not known here. */
static const char *mpi_version(void)
{
#ifdef FSDP_HAVE_MPI
    return "loaded in ranks that mpirun, mpiexec or srun has started";
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

static void add_devices(fsdp_facts *to)
{
    const bool has_cuda = fsdp_card_functions() != NULL;
    char names[128] = "";
    fsdp_text text = {names, sizeof names};
    for (size_t i = 0, shown = 0; fsdp_device_names[i]; i++)
        if (has_cuda || strcmp(fsdp_device_names[i], "cuda") != 0)
            fsdp_text_printf(&text, "%s%s", shown++ ? ", " : "", fsdp_device_names[i]);
    fsdp_fact_line(to, "devices", "%s%s", names, has_cuda ? "" : "; no cuda in this build");
}

/* --- CUDA --- */

/* Add a version of CUDA: 12040 is 12.4. */
static void add_cuda_version(fsdp_facts *to, const char *name, int version, const char *if_none)
{
    if (version)
        fsdp_fact(to, name, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    else
        fsdp_fact_missing(to, name, if_none);
}

static void add_library(fsdp_facts *to, const char *name, const char *used_for)
{
    char version[32], text[128];
    snprintf(text, sizeof text, "not found: %s", used_for);
    if (fsdp_card_functions()->library_version(name, version))
        fsdp_fact(to, name, "%s", version);
    else
        fsdp_fact_missing(to, name, text);
}

/* Say whether each card can write to the memory of each other card, as the card exchange "copy"
 * does. */
static void add_copies(fsdp_facts *to, int n)
{
    for (int from = 0; from < n; from++)
        for (int other = 0; other < n; other++)
            if (from != other && !fsdp_card_functions()->reaches(from, other)) {
                fsdp_fact(to, "copies", "cuda:%d cannot write to cuda:%d: these cards need NCCL",
                          from, other);
                return;
            }
    if (n > 1)
        fsdp_fact(to, "copies", "each card can write to the others");
}

static void add_card(fsdp_facts *to, int ordinal)
{
    fsdp_card card;
    char name[FSDP_DEVICE_NAME_BYTES];
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    if (fsdp_card_describe(ordinal, &card) != FSDP_OK) {
        fsdp_fact(to, name, "%s", fsdp_last_error());
        return;
    }
    fsdp_fact(to, name, "%s, %s, compute capability %d.%d: %s%s", card.name,
              fsdp_human_bytes(card.bytes).text, card.capability / 10, card.capability % 10,
              card.capability < FSDP_CARD_CAPABILITY ? "too old, at least 8.0 is needed"
              : *card.code                           ? "runs this program's "
                                                     : "this program has no code for it",
              card.capability < FSDP_CARD_CAPABILITY ? "" : card.code);
}

static void add_cuda(fsdp_facts *to)
{
    const fsdp_card_ops *cards = fsdp_card_functions();
    int driver, runtime, n = 0;
    char note[160];
    if (!cards)
        return;
    cards->versions(&driver, &runtime);
    snprintf(note, sizeof note, "compiled for %s", cards->code);
    fsdp_facts_section(to, "cuda", note);
    add_cuda_version(to, "runtime", runtime, "none");
    add_cuda_version(to, "driver", driver, "none: libcuda.so.1 was not found");
    if (fsdp_cards_count(&n) != FSDP_OK)
        fsdp_fact_missing(to, "cards", "none");
    for (int i = 0; i < n; i++)
        add_card(to, i);
    add_copies(to, n);
    add_library(to, "cublasLt", "it multiplies matrices on a card");
    add_library(to, "nccl",
                "it moves data between cards; without it, ranks copy to each other's cards");
}

static void add_libraries(fsdp_facts *to)
{
    fsdp_facts_section(to, "libraries", NULL);
    fsdp_fact(to, "jansson", "%s", JANSSON_VERSION);
    print_optional(to, "oneDNN", onednn_version(), "fast products below AVX-512 (plain loops)");
    print_optional(to, "libcsv", csv_version(), "CSV files");
    print_optional(to, "libyaml", yaml_version(), "--config FILE.yaml");
    print_optional(to, "hwloc", hwloc_version(), "binding by topology (equal blocks of cores)");
    print_optional(to, "cairo", plot_version(), "--plot");
    print_optional(to, "libmicrohttpd", microhttpd_version(), "'fsdp dashboard'");
    print_optional(to, "nettle", nettle_version(), "'fsdp launch' on several hosts");
    print_optional(to, "pcre2", pcre2_version(), "tokenizers that split by a regular expression");
    print_optional(to, "utf8proc", utf8proc_found_version(),
                   "T5's tokenizer, and others that normalize Unicode");
    print_optional(to, "flatbuffers", flatbuffers_version(), "Arrow folders (save_to_disk)");
    print_optional(to, "zlib", zlib_found_version(), ".gz files");
    print_optional(to, "zstd", zstd_version(), ".zst files");
    print_optional(to, "lz4", lz4_version(), "Arrow files compressed with LZ4");
    print_optional(to, "MPI", mpi_version(), "several hosts");
}

void fsdp_add_version(fsdp_facts *to)
{
    char isas[256] = "";
    fsdp_text text = {isas, sizeof isas};
    if (to->to)
        fprintf(to->to, "fsdp %s\n", FSDP_VERSION);
    else
        fsdp_fact_line(to, "fsdp", "%s", FSDP_VERSION);
#if defined(__clang__)
    fsdp_fact_line(to, "compiler", "clang %s", __clang_version__);
#else
    fsdp_fact_line(to, "compiler", "gcc %s", __VERSION__);
#endif
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++)
        fsdp_text_printf(&text, "%s%s", *isa, isa[1] ? ", " : " (best first; --isa chooses)");
    fsdp_fact_line(to, "cpu", "%s", isas);
    add_devices(to);
    add_cuda(to);
    fsdp_fact_line(to, "transports", mpi_version() ? "shm, threads, mpi" : "shm, threads");
    add_libraries(to);
}

void fsdp_print_version(FILE *to)
{
    fsdp_facts facts = {.to = to};
    fsdp_add_version(&facts);
}

const char *fsdp_build_flags(void)
{
#ifdef FSDP_BUILD_FLAGS
    return FSDP_BUILD_FLAGS;
#else
    return "unknown";
#endif
}
