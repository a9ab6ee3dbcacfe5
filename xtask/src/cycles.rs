//! No cycles between the modules of a crate: of two modules with the same parent, at most one depends on the other, also by way of
//! others. A module and its own children are one here, and so is the root of a crate with all of it.
//!
//! Reads the paths of `use`, and elsewhere those that begin with `crate` or `super`, also in what macros are given. Follows names that
//! a module re-exports to where they are defined, except by `*`. Reads no tests.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path as FilePath, PathBuf};
use std::{fs, slice};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItem, ImplItemFn, Item, ItemConst, ItemFn, ItemImpl, ItemMod, ItemStatic, ItemStruct, ItemTrait,
    ItemUse, Macro, Meta, Token, UseTree,
};
use walkdir::WalkDir;

/// Where crates are that nobody names: below `crates`, and these.
const CRATES: [&str; 4] = ["demo", "benches", "firmware-demo/rust", "xtask"];

/// A re-export of a re-export, and so on, is followed so often.
const RE_EXPORTS_MAX: u32 = 9;

/// Finds the cycles of these crates, which are directories with a `src`; of all, if there are none.
///
/// # Errors
/// There is one, or a file cannot be read.
pub fn check(root: &FilePath, crates: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let mut all = crates.to_vec();
    if all.is_empty() {
        all.extend(CRATES.map(|at| root.join(at)));
        for entry in fs::read_dir(root.join("crates"))? {
            all.push(entry?.path());
        }
        all.sort();
    }
    let mut found = Vec::new();
    for at in all {
        let cycles = read(&at.join("src"))?.cycles();
        found.extend(cycles.iter().map(|cycle| format!("{}: {cycle}", at.strip_prefix(root).unwrap_or(&at).display())));
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("modules that depend on each other:\n{}", found.join("\n")).into())
}

/// The modules of the library and the program in `src`.
fn read(src: &FilePath) -> Result<Modules, Box<dyn Error>> {
    let mut modules = Modules::default();
    for entry in WalkDir::new(src).sort_by_file_name() {
        let entry = entry?;
        let inside = entry.path().strip_prefix(src)?.with_extension("");
        let is_rust = entry.path().extension().is_some_and(|extension| extension == "rs");
        if !is_rust || inside.ends_with("tests") || inside.starts_with("bin") {
            continue;
        }
        let mut at: Path = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        at.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let text = fs::read_to_string(entry.path())?;
        modules.read(at, &text).map_err(|error| format!("{}: {error}", entry.path().display()))?;
    }
    Ok(modules)
}

/// A path in a source, or from the root of the crate to a module, which is empty for the root.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    /// What it depends on.
    paths: Vec<Path>,
    /// The names that `use` gives to paths.
    names: BTreeMap<String, Path>,
}

/// The modules of a crate.
#[derive(Default)]
struct Modules(BTreeMap<Path, Module>);

impl Modules {
    fn read(&mut self, at: Path, text: &str) -> syn::Result<()> {
        let file = syn::parse_file(text)?;
        self.0.entry(at.clone()).or_default();
        Reader { modules: self, at }.visit_file(&file);
        Ok(())
    }

    /// The module that defines what a path in the module `from` leads to. `None`: it is in another crate.
    fn resolve(&self, from: &[String], path: &[String], re_exports: u32) -> Option<Path> {
        let (mut module, mut rest) = (from.to_vec(), path);
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => module.clear(),
                "super" => drop(module.pop()),
                "self" => {}
                _ => break,
            }
            rest = others;
        }
        if rest.len() == path.len() && !self.0.contains_key(&child(&module, path.first()?)) {
            return None;
        }
        for name in rest {
            let inner = child(&module, name);
            if self.0.contains_key(&inner) {
                module = inner;
                continue;
            }
            let named = self.0.get(&module).and_then(|module| module.names.get(name));
            return match named {
                Some(path) if re_exports > 0 => self.resolve(&module, path, re_exports - 1),
                _ => Some(module),
            };
        }
        Some(module)
    }

    /// Which modules depend on which: of each two only the parts below what they have in common.
    fn edges(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let mut edges: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (from, module) in &self.0 {
            for to in module.paths.iter().filter_map(|path| self.resolve(from, path, RE_EXPORTS_MAX)) {
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (from.get(..=common), to.get(..=common)) {
                    edges.entry(from.to_vec()).or_default().insert(to.to_vec());
                }
            }
        }
        edges
    }

    /// Each cycle, as `a -> b -> a`.
    fn cycles(&self) -> Vec<String> {
        let edges = self.edges();
        let (mut done, mut found) = (BTreeSet::new(), Vec::new());
        for at in edges.keys() {
            search(&edges, at, &mut Vec::new(), &mut done, &mut found);
        }
        found
    }
}

fn search<'a>(
    edges: &'a BTreeMap<Path, BTreeSet<Path>>,
    at: &'a Path,
    trail: &mut Vec<&'a Path>,
    done: &mut BTreeSet<&'a Path>,
    found: &mut Vec<String>,
) {
    if let Some(start) = trail.iter().position(|before| *before == at) {
        let cycle = trail[start..].iter().chain([&at]).map(|module| module.join("::"));
        found.push(cycle.collect::<Vec<_>>().join(" -> "));
    } else if !done.contains(at) {
        trail.push(at);
        edges.get(at).into_iter().flatten().for_each(|next| search(edges, next, trail, done, found));
        trail.pop();
        done.insert(at);
    }
}

fn child(module: &[String], name: &String) -> Path {
    [module, slice::from_ref(name)].concat()
}

/// Notes what a module depends on.
struct Reader<'a> {
    modules: &'a mut Modules,
    at: Path,
}

impl Reader<'_> {
    fn module(&mut self) -> &mut Module {
        self.modules.0.entry(self.at.clone()).or_default()
    }

    /// A path outside of `use`: a name without `crate` or `super` is one that `use` has given, or is defined here.
    fn note(&mut self, path: Path) {
        if path.first().is_some_and(|first| ["crate", "super"].contains(&first.as_str())) {
            self.module().paths.push(path);
        }
    }

    fn note_use(&mut self, mut path: Path, tree: &UseTree) {
        let name = match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                return self.note_use(path, &inner.tree);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.note_use(path.clone(), tree)),
            UseTree::Glob(_) => None,
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                Some(name.ident.to_string())
            }
            UseTree::Rename(rename) => {
                path.push(rename.ident.to_string());
                Some(rename.rename.to_string())
            }
        };
        path.pop_if(|last| *last == "self");
        let name = name.map(|name| if name == "self" { path.last().cloned().unwrap_or_default() } else { name });
        let module = self.module();
        if let Some(name) = name.filter(|name| path != [name.as_str()]) {
            module.names.insert(name, path.clone());
        }
        module.paths.push(path);
    }

    /// Paths that a macro is given; those with `$crate` are the macro's own.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut is_own) = (Path::new(), 0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => path.push(ident.to_string()),
                TokenTree::Ident(ident) => {
                    self.note(std::mem::take(&mut path));
                    path.extend((!is_own).then(|| ident.to_string()));
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Punct(punct) => {
                    self.note(std::mem::take(&mut path));
                    is_own = punct.as_char() == '$';
                    colons = 0;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.note(std::mem::take(&mut path));
                    self.note_tokens(group.stream());
                }
                TokenTree::Literal(_) => self.note(std::mem::take(&mut path)),
            }
            (colons, is_own) = (0, false);
        }
        self.note(path);
    }
}

impl Visit<'_> for Reader<'_> {
    fn visit_item(&mut self, item: &Item) {
        if !is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &ImplItem) {
        match item {
            ImplItem::Fn(ImplItemFn { attrs, .. }) if attrs.iter().any(needs_test) => {}
            _ => visit::visit_impl_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, module: &ItemMod) {
        self.at.push(module.ident.to_string());
        if module.content.is_some() {
            self.module();
        }
        visit::visit_item_mod(self, module);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        self.note_use(Path::new(), &item.tree);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.visit_path(&call.path);
        self.note_tokens(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.note(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

fn is_of_tests(item: &Item) -> bool {
    match item {
        Item::Const(ItemConst { attrs, .. })
        | Item::Fn(ItemFn { attrs, .. })
        | Item::Impl(ItemImpl { attrs, .. })
        | Item::Mod(ItemMod { attrs, .. })
        | Item::Static(ItemStatic { attrs, .. })
        | Item::Struct(ItemStruct { attrs, .. })
        | Item::Trait(ItemTrait { attrs, .. })
        | Item::Use(ItemUse { attrs, .. }) => attrs.iter().any(needs_test),
        _ => false,
    }
}

fn needs_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|condition: Meta| implies_test(&condition))
}

/// Whether what is under this condition is only in tests: `test`, or all of several with `test` among them.
fn implies_test(condition: &Meta) -> bool {
    match condition {
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|conditions| conditions.iter().any(implies_test)),
        condition => condition.path().is_ident("test"),
    }
}

#[cfg(test)]
mod tests {
    use super::Modules;

    fn cycles(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::default();
        for (at, text) in files {
            let at = at.split("::").filter(|part| !part.is_empty()).map(String::from).collect();
            modules.read(at, text).unwrap();
        }
        modules.cycles()
    }

    /// `a` needs `b`, whose child needs `c`.
    const HOUSE: [(&str, &str); 4] = [
        ("", "mod a; mod b; mod c; pub use c::{ C, };"),
        ("a", "use crate::b;"),
        ("b", "mod d; pub struct B;"),
        ("b::d", "use super::B; // crate::a\nfn f() -> crate::C { \"crate::a\" }"),
    ];

    #[test]
    fn a_house_without_cycles_has_none() {
        let c = "pub struct C; #[cfg(test)] mod tests { use crate::a; }";
        assert_eq!(cycles(&[&HOUSE[..], &[("c", c)]].concat()), [""; 0]);
        let c = "#[cfg(all(test, unix))] use crate::a; impl C { #[cfg(test)] fn f() { crate::a::f() } } macro_rules! m { () => { $crate::a } }";
        assert_eq!(cycles(&[&HOUSE[..], &[("c", c)]].concat()), [""; 0]);
    }

    #[test]
    fn a_cycle_is_found_wherever_the_path_is() {
        for path in [
            "use crate::{ a::{self as _}, };",
            "fn f() -> crate::a::A {}",
            "fn f() { super::a::f() }",
            "fn f() { vec![(0, crate::a::A)] }",
            "impl C { fn f(self: crate::a::A) {} } #[cfg(test)] mod tests {}",
            "#[cfg(not(test))] use crate::a;",
            "mod inside { use super::super::a; }",
            "use super::b; fn f() -> Vec<Option<crate::a::A>> {}",
        ] {
            let found = cycles(&[&HOUSE[..], &[("c", path)]].concat());
            assert!(found.contains(&"a -> b -> c -> a".to_owned()), "{path}: {found:?}");
        }
    }

    /// What the root re-exports is where it is defined; what another crate defines is nowhere here.
    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let root = ("", "pub use a::A; pub use other::O; mod a; mod b;");
        assert_eq!(cycles(&[root, ("a", "use crate::b::B;"), ("b", "use crate::O;")]), [""; 0]);
        assert_eq!(cycles(&[root, ("a", "use crate::b::B;"), ("b", "use crate::A;")]), ["a -> b -> a"]);
    }
}
