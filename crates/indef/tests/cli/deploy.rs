//! What a fleet is set up with (packaging/kubernetes, packaging/ansible) says what the program accepts, and what the unit
//! says.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

use crate::common::{Run, indef, run};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

fn text(name: &str) -> String {
    let path = packaging(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a file, as JSON values.
fn documents(name: &str) -> Vec<Value> {
    let text = text(name);
    let found = Yaml::load_from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    found.iter().map(value).collect()
}

fn value(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(entries) => entries.iter().map(value).collect(),
        Yaml::Mapping(fields) => {
            let fields = fields.iter().map(|(name, field)| match name {
                Yaml::Value(Scalar::String(name)) => (name.to_string(), value(field)),
                other => panic!("a name that is no text: {other:?}"),
            });
            fields.collect::<Map<_, _>>().into()
        }
        other => panic!("not understood: {other:?}"),
    }
}

/// What `indef config check` says of this configuration.
#[track_caller]
fn assert_accepted(configuration: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("indef.toml");
    fs::write(&file, configuration).unwrap();
    let ran = indef().args(["config", "check"]).arg(&file).ran();
    assert_eq!(ran.status, 0, "{configuration}\n{ran:?}");
}

/// Values of a setting of the service's unit, of all its lines.
fn unit(name: &str) -> Vec<String> {
    of_unit("indef-watch.service", name)
}

fn of_unit(file: &str, name: &str) -> Vec<String> {
    let unit = text(&format!("systemd/{file}"));
    let begin = format!("{name}=");
    let lines = unit.lines().filter_map(|line| line.strip_prefix(&*begin));
    lines
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

/// The words of a list.
#[track_caller]
fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|word| word.as_str().unwrap()).collect()
}

struct Manifests {
    all: Vec<Value>,
}

impl Manifests {
    fn read() -> Self {
        Self {
            all: documents("kubernetes/indef-watch.yaml"),
        }
    }

    #[track_caller]
    fn of_kind(&self, kind: &str) -> &Value {
        let mut found = self.all.iter().filter(|document| document["kind"] == kind);
        let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
        assert!(found.next().is_none(), "{kind} twice");
        first
    }

    fn pod(&self) -> &Value {
        &self.of_kind("DaemonSet")["spec"]["template"]["spec"]
    }

    fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    fn configuration(&self) -> &str {
        self.of_kind("ConfigMap")["data"]["indef.toml"]
            .as_str()
            .unwrap()
    }
}

#[test]
fn the_manifests_belong_together() {
    let manifests = Manifests::read();
    let namespace = &manifests.of_kind("Namespace")["metadata"]["name"];
    for kind in ["NetworkPolicy", "ConfigMap", "DaemonSet"] {
        assert_eq!(
            &manifests.of_kind(kind)["metadata"]["namespace"],
            namespace,
            "{kind}"
        );
    }
    let spec = &manifests.of_kind("DaemonSet")["spec"];
    assert_eq!(
        spec["selector"]["matchLabels"],
        spec["template"]["metadata"]["labels"]
    );
    let volumes = manifests.pod()["volumes"].as_array().unwrap();
    let named = |list: &Value| -> BTreeSet<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        named(&manifests.pod()["volumes"]),
        named(&manifests.container()["volumeMounts"])
    );
    let map = volumes
        .iter()
        .find_map(|volume| volume["configMap"]["name"].as_str());
    assert_eq!(
        map,
        manifests.of_kind("ConfigMap")["metadata"]["name"].as_str()
    );
    // Of another program, or of another version, there is no image.
    let image = manifests.container()["image"].as_str().unwrap();
    assert!(
        image.ends_with(&format!("/indef:{}", env!("CARGO_PKG_VERSION"))),
        "{image}"
    );
}

#[test]
fn the_pod_says_what_the_program_accepts() {
    let manifests = Manifests::read();
    let container = manifests.container();
    // An option that is not known is told before the help is shown.
    let mut arguments = words(&container["args"]);
    arguments.push("--help");
    let ran = run(&arguments);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(run(["watch", "--confog", "--help"]).status, 2);
    assert_accepted(manifests.configuration());
    let places: Vec<(&str, &Value)> = (container["volumeMounts"].as_array().unwrap().iter())
        .map(|mount| (mount["mountPath"].as_str().unwrap(), mount))
        .collect();
    // `--config` without a name reads this file, and its folder is not for all to write.
    let (_, file) = places
        .iter()
        .find(|(path, _)| *path == "/etc/indef/indef.toml")
        .unwrap();
    assert_eq!(
        (&file["subPath"], &file["readOnly"]),
        (&json!("indef.toml"), &json!(true))
    );
    let configuration: toml::Table = manifests.configuration().parse().unwrap();
    let is_mounted = |path: &str| {
        places
            .iter()
            .any(|(at, mount)| Path::new(path).starts_with(at) && mount["readOnly"] != true)
    };
    let metrics = configuration["metrics"]["metrics-file"].as_str().unwrap();
    assert!(is_mounted(metrics), "{metrics}");
    for excluded in configuration["select"]["exclude"].as_array().unwrap() {
        assert!(is_mounted(excluded.as_str().unwrap()), "{excluded:?}");
    }
    let variables: Vec<&str> = (container["env"].as_array().unwrap().iter())
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["INDEF_HOST", "STATE_DIRECTORY"]);
    let state = container["env"][1]["value"].as_str().unwrap();
    assert!(
        is_mounted(state) && is_mounted("/run/indef"),
        "state and claims outlive it"
    );
    // Both are looked at.
    let dir = tempfile::tempdir().unwrap();
    let mut doctor = indef();
    doctor
        .env("INDEF_HOST", "node-7")
        .env("STATE_DIRECTORY", dir.path());
    let document = doctor.args(["doctor", "--json"]).ran().json();
    assert_eq!(document["made"]["host"], "node-7");
    let told = document["state"]["path"].as_str().unwrap();
    assert_eq!(Path::new(told), dir.path());
}

/// A pod and the unit have the same rights, as far as both have a word for them.
#[test]
fn the_pod_may_what_the_unit_may() {
    let manifests = Manifests::read();
    let (pod, container) = (manifests.pod(), manifests.container());
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    let has: BTreeSet<String> = words(&context["capabilities"]["add"])
        .iter()
        .map(|name| format!("CAP_{name}"))
        .collect();
    // In a pod one process moves and traces.
    let of = |file| of_unit(file, "CapabilityBoundingSet");
    let wanted = [of("indef-watch.service"), of("indef-trace@.service")];
    let wanted: BTreeSet<String> = wanted.into_iter().flatten().collect();
    assert_eq!(has, wanted);
    assert_eq!(
        (&context["privileged"], &context["readOnlyRootFilesystem"]),
        (&json!(false), &json!(true))
    );
    for shared in [
        "hostPID",
        "hostNetwork",
        "hostIPC",
        "automountServiceAccountToken",
    ] {
        assert_eq!(pod[shared], false, "{shared}");
    }
    let grace = pod["terminationGracePeriodSeconds"].to_string();
    assert_eq!([grace], unit("TimeoutStopSec")[..]);
    assert_eq!(unit("MemoryMax"), ["1G"]);
    assert_eq!(container["resources"]["limits"], json!({"memory": "1Gi"}));
    assert_eq!(unit("StateDirectory"), ["indef"]);
    assert_eq!(container["env"][1]["value"], "/var/lib/indef");
    // All traffic is refused, as nothing is said to be allowed.
    let policy = &manifests.of_kind("NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(policy.get("ingress").is_none() && policy.get("egress").is_none());
}

#[test]
fn the_image_has_what_there_is() {
    let file = text("kubernetes/Containerfile");
    let copied = file
        .lines()
        .filter_map(|line| line.strip_prefix("COPY LICENSE"));
    for licences in copied {
        for licence in format!("LICENSE{licences}")
            .split_whitespace()
            .filter(|word| !word.starts_with('/'))
        {
            assert!(packaging("..").join(licence).is_file(), "{licence}");
        }
    }
    assert!(file.contains("COPY ${PROGRAM} /usr/bin/indef\n"));
    assert!(file.ends_with("ENTRYPOINT [\"/usr/bin/indef\"]\n"));
}

const ROLE: &str = "ansible/roles/indef";

fn role(part: &str) -> Vec<Value> {
    let documents = documents(&format!("{ROLE}/{part}/main.yml"));
    assert_eq!(documents.len(), 1, "{part}");
    documents[0]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![documents[0].clone()])
}

/// All tasks, those in blocks, too.
fn tasks(list: &[Value]) -> Vec<&Value> {
    let mut found = Vec::new();
    for task in list {
        match task["block"].as_array() {
            Some(block) => found.extend(tasks(block)),
            None => found.push(task),
        }
    }
    found
}

#[test]
fn the_role_names_units_files_and_commands_that_there_are() {
    let (tasks_file, handlers) = (role("tasks"), role("handlers"));
    let mut units = BTreeSet::new();
    let mut notified = BTreeSet::new();
    let all: Vec<&Value> = tasks(&tasks_file).into_iter().chain(&handlers).collect();
    for task in &all {
        assert!(task["name"].is_string(), "{task}");
        notified.extend(task["notify"].as_str());
        let quoted = task["ansible.builtin.systemd"]["name"]
            .as_str()
            .unwrap_or_default();
        units.extend(
            quoted
                .split('\'')
                .filter(|word| word.starts_with("indef") && word.contains('.')),
        );
        units.extend(
            task["loop"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| item["unit"].as_str()),
        );
        if let Some(template) = task["ansible.builtin.template"]["src"].as_str() {
            assert!(
                packaging(ROLE).join("templates").join(template).is_file(),
                "{template}"
            );
        }
        if let Some(command) = task["ansible.builtin.command"].as_str() {
            let mut words = command.split(' ');
            assert_eq!(words.next(), Some("indef"));
            let ran = run(words.chain(["--help"]));
            assert_eq!(ran.status, 0, "{ran:?}");
            // A command that only looks changes nothing.
            assert_eq!(task["changed_when"], false, "{task}");
        }
    }
    assert_eq!(
        units,
        BTreeSet::from(["indef-watch.service", "indef.timer"])
    );
    for unit in units {
        assert!(packaging("systemd").join(unit).is_file(), "{unit}");
    }
    let named: BTreeSet<&str> = handlers
        .iter()
        .filter_map(|handler| handler["name"].as_str())
        .collect();
    assert_eq!(notified, named);
    // Where the program looks for drop-ins.
    let written = all
        .iter()
        .filter_map(|task| task["ansible.builtin.template"]["dest"].as_str());
    assert!(
        written
            .clone()
            .any(|path| path.starts_with("/etc/indef/indef.toml.d/") && path.ends_with(".toml"))
    );
    // What a loopback port needs of the unit is what the page says.
    let page = fs::read_to_string(packaging("../docs/ops.md")).unwrap();
    let settings = text(&format!("{ROLE}/templates/loopback.conf.j2"));
    for line in settings.lines().skip(2) {
        assert!(page.contains(&format!("`{line}`")), "{line}");
    }
}

/// TOML as the template writes it.
fn as_the_template(configuration: &Value) -> String {
    let fields = || configuration.as_object().unwrap().iter();
    let mut text = String::new();
    for (key, value) in fields().filter(|(_, value)| !value.is_object()) {
        writeln!(text, "{key} = {value}").unwrap();
    }
    for (section, keys) in fields().filter_map(|(name, value)| Some((name, value.as_object()?))) {
        writeln!(text, "\n[{section}]").unwrap();
        for (key, value) in keys {
            writeln!(text, "{key} = {value}").unwrap();
        }
    }
    text
}

/// The configuration of the example in the comments of the role's defaults, and that of the playbook.
fn examples() -> [Value; 2] {
    let defaults = text(&format!("{ROLE}/defaults/main.yml"));
    let (_, commented) = defaults.split_once("# indef_config:\n").unwrap();
    let lines: String = (commented.lines().map_while(|line| line.strip_prefix("# ")))
        .map(|line| format!("{line}\n"))
        .collect();
    let example = value(&Yaml::load_from_str(&lines).unwrap()[0]);
    let playbook = documents("ansible/site.yml");
    [example, playbook[0][0]["roles"][0]["indef_config"].clone()]
}

#[test]
fn configurations_for_the_role_are_accepted() {
    for example in examples() {
        assert!(example.as_object().unwrap().len() >= 3, "{example}");
        assert_accepted(&as_the_template(&example));
    }
    // The test above is as strict as the program.
    let wrong = as_the_template(&json!({"limits": {"budgit": "1GiB"}}));
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.toml"), wrong).unwrap();
    let ran = indef()
        .args(["config", "check"])
        .arg(dir.path().join("x.toml"))
        .ran();
    assert_eq!(ran.status, 1, "{ran:?}");
}

/// The template itself, by Ansible, where it is installed.
#[test]
fn ansible_writes_what_is_accepted() {
    if Command::new("ansible").arg("--version").output().is_err() {
        return scratch_fs::skip("Ansible is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("indef.toml");
    let template = packaging(ROLE).join("templates/indef.toml.j2");
    for example in examples() {
        let variables = json!({"indef_config": example}).to_string();
        let arguments = format!("src={} dest={}", template.display(), written.display());
        let output = Command::new("ansible")
            .args([
                "localhost",
                "--connection=local",
                "--module-name=template",
                "--args",
                &arguments,
            ])
            .args(["--extra-vars", &variables])
            .env("ANSIBLE_LOCAL_TEMP", dir.path().join("tmp"))
            .env("ANSIBLE_REMOTE_TEMP", dir.path().join("tmp"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&written).unwrap();
        let (_, text) = text.split_once('\n').unwrap();
        let (text, expected) = (
            text.parse::<toml::Table>(),
            as_the_template(&example).parse(),
        );
        assert_eq!(text.unwrap(), expected.unwrap());
        assert_accepted(&fs::read_to_string(&written).unwrap());
    }
    let syntax = Command::new("ansible-playbook")
        .args(["--syntax-check", "--inventory", "localhost,"])
        .arg(packaging("ansible/site.yml"))
        .env("ANSIBLE_LOCAL_TEMP", dir.path().join("tmp"))
        .output()
        .unwrap();
    assert!(syntax.status.success(), "{syntax:?}");
}
