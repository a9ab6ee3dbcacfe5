// coalesce_spdk_tgt: spdk_tgt with its options and RPCs. What it adds registers itself: vhost.c, nvmf.c, rpc.c.
#include <spdk/stdinc.h>

#include <spdk/config.h>
#include <spdk/event.h>
#include <spdk/vhost.h>
#ifdef SPDK_CONFIG_VFIO_USER
#include <spdk/vfu_target.h>
#endif

// With fewer MB, SPDK's pools do not fit. It says which one, and not that there is too little memory.
#define MEMORY_ENOUGH 1024

static const char *pid_path;
static bool has_started;

static void usage(void)
{
    printf(" -f <file>                 pidfile save pid to file under given path\n");
    printf(" -S <path>                 directory where to create vhost/vfio-user sockets (default: pwd)\n");
}

static int parse(int option, char *argument)
{
    switch (option) {
    case 'f':
        pid_path = argument;
        return 0;
    case 'S':
        spdk_vhost_set_socket_path(argument);
#ifdef SPDK_CONFIG_VFIO_USER
        spdk_vfu_set_socket_path(argument);
#endif
        return 0;
    default:
        return -EINVAL;
    }
}

static void started(void *unused)
{
    has_started = true;
    if (!pid_path)
        return;
    FILE *file = fopen(pid_path, "w");
    if (!file) {
        fprintf(stderr, "Couldn't create pid file '%s': %s\n", pid_path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    fprintf(file, "%d\n", getpid());
    fclose(file);
}

int main(int argc, char **argv)
{
    struct spdk_app_opts opts = {};
    spdk_app_opts_init(&opts, sizeof(opts));
    opts.name = "coalesce_spdk_tgt";
    int rc = spdk_app_parse_args(argc, argv, &opts, "f:S:", NULL, parse, usage);
    if (rc != SPDK_APP_PARSE_ARGS_SUCCESS)
        return rc == SPDK_APP_PARSE_ARGS_HELP ? EXIT_SUCCESS : EXIT_FAILURE;
    rc = spdk_app_start(&opts, started, NULL);
    if (rc != 0 && !has_started && opts.mem_size >= 0 && opts.mem_size < MEMORY_ENOUGH)
        fprintf(stderr, "-s %d: too little memory; -s %d (MB) is enough for two CPUs, and for no disk in memory\n", opts.mem_size,
                MEMORY_ENOUGH);
    spdk_app_fini();
    return rc;
}
