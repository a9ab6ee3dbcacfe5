"""SPDK's rpc.py with the calls of coalesce_spdk_tgt: PYTHONPATH=.../spdk rpc.py --plugin coalesce_rpc coalesce_get_stats"""

from spdk.rpc.client import print_dict


def params(args, *names):
    """Those of `names` that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def coalesce_set_policy(args):
    args.client.call("coalesce_set_policy", params(args, "ctrlr", "nqn", "policy"))


def coalesce_get_policy(args):
    print_dict(args.client.call("coalesce_get_policy", params(args, "ctrlr", "nqn")))


def coalesce_get_stats(args):
    print_dict(args.client.call("coalesce_get_stats", params(args, "ctrlr", "nqn")))


def coalesce_reset_stats(args):
    args.client.call("coalesce_reset_stats", params(args, "ctrlr", "nqn"))


def spdk_rpc_plugin_initialize(subparsers):
    for function, what, needs_device in [
        (coalesce_set_policy, "Set the policy that decides about interrupts", True),
        (coalesce_get_policy, "Show policies", False),
        (coalesce_get_stats, "Show completions, interrupts, decisions by reason, and how long completions were held", False),
        (coalesce_reset_stats, "Set all counters to zero", False),
    ]:
        parser = subparsers.add_parser(function.__name__, help=what)
        device = parser.add_mutually_exclusive_group(required=needs_device)
        device.add_argument("-c", "--ctrlr", help="vhost-blk controller")
        device.add_argument("-q", "--nqn", help="NVMe subsystem")
        if needs_device:
            parser.add_argument("policy", help='text form: "auto", "vic:cif_threshold=2", "none"')
        parser.set_defaults(func=function)
