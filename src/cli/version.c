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

#include <fsdp/base.h>

#include "src/cli/version.h"
#include "src/tensor/device.h"

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

static const char *sentencepiece_version(void)
{
#ifdef FSDP_HAVE_SENTENCEPIECE
    return "found";
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

static void print_devices(FILE *to)
{
    fprintf(to, "devices:");
    for (size_t i = 0, shown = 0; fsdp_device_names[i]; i++)
        if (strcmp(fsdp_device_names[i], "cuda") != 0)
            fprintf(to, "%s %s", shown++ ? "," : "", fsdp_device_names[i]);
    fprintf(to, "; no cuda in this build\n");
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
    fprintf(to, "transports: shm, threads\nlibraries:\n");
    fprintf(to, "  %-13s %s\n", "jansson", JANSSON_VERSION);
    print_optional(to, "oneDNN", onednn_version(), "fast products below AVX-512 (plain loops)");
    print_optional(to, "sentencepiece", sentencepiece_version(), "T5's tokenizer");
    print_optional(to, "libcsv", csv_version(), "CSV files");
    print_optional(to, "libyaml", yaml_version(), "--config FILE.yaml");
    print_optional(to, "hwloc", hwloc_version(), "binding by topology (equal blocks of cores)");
    print_optional(to, "cairo", plot_version(), "--plot");
}
