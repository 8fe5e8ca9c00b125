/* A plugin of QEMU's user mode that says, when a program ends, how many instructions it has run. */
#include <inttypes.h>
#include <qemu-plugin.h>
#include <stdio.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static uint64_t count; /* of a program with one thread */

static void count_block(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &count, qemu_plugin_tb_n_insns(block));
}

static void say(qemu_plugin_id_t id, void *nothing) {
    (void)id;
    (void)nothing;
    fprintf(stderr, "%" PRIu64 " instructions\n", count);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_atexit_cb(id, say, NULL);
    return 0;
}
