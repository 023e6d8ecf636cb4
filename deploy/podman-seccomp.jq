# Takes from Podman's seccomp profile what Docker's does not allow either: namespaces and mounts of a program's
# own. With them a program becomes root in a user namespace, and speaks to much more of the kernel than a run
# needs. See README.md.
#   jq -f podman-seccomp.jq /usr/share/containers/seccomp.json > /etc/containers/seccomp-runs.json

# CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
2114060288 as $namespaces
| .syscalls |= (
    map(.names -= ["clone", "clone3", "unshare", "setns", "mount", "umount", "umount2", "pivot_root",
                   "open_tree", "move_mount", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick"]
        | select(.names != []))
    # Threads and children, without any of these flags.
    + [{ names: ["clone"], action: "SCMP_ACT_ALLOW",
         args: [{ index: 0, value: $namespaces, op: "SCMP_CMP_MASKED_EQ" }] },
       # Its flags lie in memory, where no filter sees them: ENOSYS sends libraries to clone.
       { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 }]
  )
